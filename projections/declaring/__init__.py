"""Declarations: tables, streams, views, windows and patterns, checked when they are written.

The room imports errors alone. It never knows a log, a store or Spark.
"""
