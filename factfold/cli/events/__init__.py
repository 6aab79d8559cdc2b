"""Commands of events: stores, streams, schemas, traces and erasure.

The room imports the other rooms of commands, and eventstore. It never knows a page of the console.
"""
