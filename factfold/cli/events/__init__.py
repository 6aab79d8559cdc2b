"""Commands of events: stores, streams, schemas, traces and erasure.

The room imports the parts of commands next to it, and eventstore. It never knows a page of the console.
"""
