"""Connectors as typed, frozen declarations: each gives the configuration of Kafka Connect.

The room imports changes. It never knows a worker.
"""
