"""The only place that speaks to Kafka through confluent_kafka."""

from eventstore.extras import require_extra

require_extra("kafka")
