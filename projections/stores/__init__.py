"""Stores of tables: state and views in generations, staged changes, runs and their progress.

The room imports declarations, plans and the offsets of logs. It never knows Spark, and no other room writes its SQL.
"""
