"""Connectors in operation: planned, applied, watched, restarted, stopped and diagnosed.

The room imports connect, source, comparing, connectors and changes. It never knows how a service's project is prepared.
"""
