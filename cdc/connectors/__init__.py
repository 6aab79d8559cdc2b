"""Connectors as typed, frozen declarations; each knows the configuration Kafka Connect is to be given."""
