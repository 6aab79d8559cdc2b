"""Commands of connectors: prepare, plan, apply, watch and compare.

The room imports the other rooms of commands, and cdc. It never knows a page of the console.
"""
