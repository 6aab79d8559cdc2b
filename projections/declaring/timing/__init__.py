"""Time in declarations: windows, histories, patterns and promises.

The room imports declarations. It never knows a log or a store.
"""
