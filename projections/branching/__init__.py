"""Routing: records of a topic put into one of several topics, by a process of its own.

The room imports declarations, restarts and the routing query of Spark. It never knows a view.
"""
