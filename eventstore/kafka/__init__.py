"""The only place that speaks to Kafka through confluent_kafka."""

from eventstore.exports import exports
from eventstore.extras import require_extra

require_extra("kafka")
__getattr__, __dir__, __all__ = exports(__name__, __file__)
