"""PostgreSQL, Kafka and Kafka Connect on this machine, without Docker."""

from eventstore.exports import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
