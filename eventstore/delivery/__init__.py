"""Delivery: from a source of events to a handler, with transactions, retries, dead letters and acknowledgement.

The room imports event types, topics, the inbox and the transactions of backends. It never knows Kafka.
"""
