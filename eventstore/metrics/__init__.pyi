from eventstore.metrics.families import (
    Family as Family,
    Kind as Kind,
    Metrics as Metrics,
    RunnerMetrics as RunnerMetrics,
)
from eventstore.metrics.runners import (
    ProcessMetrics as ProcessMetrics,
    RelayMetrics as RelayMetrics,
    SubscriptionMetrics as SubscriptionMetrics,
)
from eventstore.metrics.serving import (
    looking as looking,
    serve_metrics as serve_metrics,
    write_metrics as write_metrics,
)
