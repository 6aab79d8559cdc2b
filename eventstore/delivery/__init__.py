"""From a source of events to a handler: transactions, retries, dead letters, acknowledgement."""

from eventstore.exports import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
