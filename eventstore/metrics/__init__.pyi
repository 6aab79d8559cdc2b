from eventstore.metrics.families import (
    ProcessMetrics as ProcessMetrics,
    RelayMetrics as RelayMetrics,
    SubscriptionMetrics as SubscriptionMetrics,
)
from eventstore.metrics.families import (
    refreshing as refreshing,
    serve_metrics as serve_metrics,
    write_metrics as write_metrics,
)
