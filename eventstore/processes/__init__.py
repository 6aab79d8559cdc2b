"""Process managers: decisions of a service about events over days, with timers, replies and compensation.

The room imports aggregates, backends and delivery. No store, topic or subscription knows it.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
