"""Metrics that no single runner knows: the fence, dead letters, the freshness of views, results of comparisons.

The room imports the lower packages. It never knows a page of the console. `files/` has a dashboard and alert rules.
"""
