"""Kafka: administration, producers, consumers and registries through confluent_kafka.

The room imports delivery and topics. It never knows a process manager or a relay, and no other room imports the client.
"""

from eventstore.extras import exports, require_extra

require_extra("kafka")
__getattr__, __dir__, __all__ = exports(__name__, __file__)
