"""The only place that speaks to Kafka through confluent_kafka."""
