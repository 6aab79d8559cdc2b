"""Metrics of runners for Prometheus: declared as data, counted from any thread, served by Prometheus' own client.

The room imports the status records of runners. It never starts a runner, and no runner imports it unless you ask for
metrics. Its names need the extra `metrics`.
"""

from eventstore.extras import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
