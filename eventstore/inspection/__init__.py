"""What happened: look at events of stores and topics, states of streams and traces, and deliver events again."""

from eventstore.exports import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
