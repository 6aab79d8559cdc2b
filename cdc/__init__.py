"""Row changes become changelog topics: declare, apply and watch connectors, and decode change events.

from cdc import ConnectClient, PostgresSource, apply, prepare_source, write_secrets

Errors are in `cdc.errors`.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
