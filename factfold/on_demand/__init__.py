"""Names of the lower packages that a command loads when it first uses them, because they take long or need an extra.

The stub lists them. The room imports the lower packages, which load their public names in the same way. It never has
a name of factfold: an import that no tool sees could close a circle.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
