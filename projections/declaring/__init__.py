"""Declarations: tables, streams, views, windows and patterns, checked when they are written.

The room imports events of eventstore, rows of cdc and errors. It never knows a log or a store. Spark is asked for the
functions of windows and histories, and for the tables that a query reads.
"""
