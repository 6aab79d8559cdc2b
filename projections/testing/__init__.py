"""Tests of views: trials, a log in memory, and change events as a connector writes them.

The room imports every room of projections. No other room imports it.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
