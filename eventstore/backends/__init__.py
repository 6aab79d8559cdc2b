"""Stores of events: PostgreSQL and SQLite through SQLAlchemy, and the memory of a process.

The room imports fields, delivery, dead letters and inspection. It never knows Kafka or a process manager.
"""
