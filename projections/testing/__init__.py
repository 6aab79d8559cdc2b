"""Tests of views: trials, a log in memory, and change events as a connector writes them.

The room imports every room of projections. No other room imports it.
"""
