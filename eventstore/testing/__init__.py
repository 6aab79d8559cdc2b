"""Tests with the event store: scenarios, deliveries, and the suites that a backend must pass.

The room imports every room of eventstore. No other room imports it.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
