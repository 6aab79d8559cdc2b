"""Stores of events: PostgreSQL and SQLite through SQLAlchemy, and the memory of a process.

The room imports aggregates, fields and delivery. It never knows Kafka or a process manager.
"""
