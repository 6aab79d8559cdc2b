"""Capture without Debezium: triggers of a SQLite file that write the same change events.

The room imports changes. It never knows Kafka Connect.
"""
