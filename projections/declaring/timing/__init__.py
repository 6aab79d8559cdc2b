"""Time in declarations: windows, histories, patterns and promises.

The room imports declarations. It never knows a log, a store or Spark.
"""
