"""Kafka Connect's REST interface: workers, the states of connectors, and the causes of failed tasks.

The room imports connectors. It never knows the database that a connector reads.
"""
