"""Preflight: is the code safe to deploy on the data that is stored? One check a module, findings as values.

The room imports the lower packages, the parts of commands and the console's definitions. It never writes to what it
checks, and never knows a page of the console.

findings    a finding, and what all checks are given
stored      the event store: tables, events, streams, snapshots, processes
against     states by the deployed code, next to those by the present one
delivery    connectors and their sources, topics without a producer, events without a reader
views       which views plan, which are built again and why, which columns are lost
"""
