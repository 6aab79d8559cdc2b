"""The database that a connector reads: catalogue, privileges, publication, signals and health.

The room imports connect, connectors and changes. It never decides when a connector is applied, restarted or deleted.
"""
