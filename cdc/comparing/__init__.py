"""Comparisons: rows of captured tables in the source, and the state made from their changelog.

The room imports source, connectors, changes and embedded capture. It never knows how a connector is applied.
"""
