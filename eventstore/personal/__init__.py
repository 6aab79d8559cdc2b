"""Personal fields: their mark, and the bytes of their sealed values.

The room imports conversions of fields. It never knows a store: `eventstore.personal.sealing` has the keys.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
