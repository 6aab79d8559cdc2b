"""Inspection: events of stores and topics, states of streams, and traces.

The room imports aggregates and the rows of a store. It never changes anything.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
