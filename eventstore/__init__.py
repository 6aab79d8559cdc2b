"""Commands become events, events become topic records, and services subscribe to them.

Names are loaded when they are first used: importing this package starts nothing and loads no third-party client.
Errors are in `eventstore.errors`.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
