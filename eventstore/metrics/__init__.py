"""Metrics of runners for Prometheus: declared as data, counted from any thread, served by Prometheus' own client.

Importing this package needs the extra `metrics`. No runner imports it unless you ask for metrics.
"""

from eventstore.extras import require_extra

require_extra("metrics")

from eventstore.metrics.delivering import SubscriptionMetrics  # noqa: E402
from eventstore.metrics.families import Family, Kind, Metrics, RunnerMetrics  # noqa: E402
from eventstore.metrics.processing import ProcessMetrics  # noqa: E402
from eventstore.metrics.relaying import RelayMetrics  # noqa: E402
from eventstore.metrics.serving import MetricsPortTaken, serve_metrics, write_metrics  # noqa: E402

__all__ = [
    "Family", "Kind", "Metrics", "MetricsPortTaken", "ProcessMetrics", "RelayMetrics", "RunnerMetrics",
    "SubscriptionMetrics", "serve_metrics", "write_metrics",
]  # fmt: skip
