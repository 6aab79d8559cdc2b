"""Topics that projections write: rows of views behind the commits that changed them, and dead letters.

The room imports stores, logs and declarations. It never knows the runner.
"""
