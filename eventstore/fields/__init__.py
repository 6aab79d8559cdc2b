"""Fields of events: Python types as Avro, values in both directions, and upcasters of older versions.

The room imports the marks of personal fields and the registry of schemas. It never knows an aggregate or a store.
"""
