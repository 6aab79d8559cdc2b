"""A service prepared for capture: from an empty database to running connectors, step by step.

The room imports every room of cdc. No other room imports it.
"""
