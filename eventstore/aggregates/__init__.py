"""Aggregates and commands: decide refuses or emits events, evolve folds them.

The room imports fields, messages and the port of stores. It never knows a database, Kafka or a subscription.
"""
