"""Change events: Debezium's records decoded to typed rows, positions and transactions.

The room imports nothing of cdc but its errors. It never knows a connector, a worker or a source database.
"""
