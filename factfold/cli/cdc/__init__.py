"""Commands of connectors: prepare, plan, apply, watch and compare.

The room imports the parts of commands next to it, and cdc. It never knows a page of the console.
"""
