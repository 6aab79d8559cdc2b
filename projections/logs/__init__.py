"""Logs that projections read: the port, topics in front of others, and how far they reach.

The room imports declarations. It never knows a store or Spark.
"""
