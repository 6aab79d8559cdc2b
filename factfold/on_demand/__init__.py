"""Names of the lower packages that a command loads when it first uses them, because they take long or need an extra.

The stub lists them. `eventstore`, `cdc` and `projections` load their public names in the same way. A name of this
package does not belong here: an import that no tool sees could close a circle.
"""

from eventstore.exports import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
