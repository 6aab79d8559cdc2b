"""Metrics of runners for Prometheus: declared as data, counted from any thread, served by Prometheus' own client.

Its names need the extra `metrics`. No runner imports them unless you ask for metrics.
"""

from eventstore.exports import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
