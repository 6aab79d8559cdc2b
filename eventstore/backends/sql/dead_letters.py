"""The dead letters of subscriptions that read a store, in the handler's database: one row a group, topic and event.

The topic has the store's schema in it where that is not the default one. Two tenants that imported the same events, or
two topics of one group, have a row each.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, DateTime, Integer, MetaData, Table, Text, Uuid, inspect

from eventstore.backends.sql.ways import ways_of


def dead_letters_table(metadata: MetaData) -> Table:
    """Describe the table `factfold_dead_letters`."""
    return Table(
        "factfold_dead_letters",
        metadata,
        Column("subscriber", Text, primary_key=True),
        Column("topic", Text, primary_key=True),
        Column("event_id", Uuid, primary_key=True),
        Column("stream", Text, nullable=False),
        Column("version", Integer, nullable=False),
        Column("error", Text, nullable=False),
        Column("message", Text, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("time", DateTime(timezone=True), nullable=False),
    )


def key_by_topic(tx: Connection, table: Table) -> None:
    """Add the topic to the primary key of a table that an earlier release made without it; no row is lost."""
    if "topic" not in inspect(tx).get_pk_constraint(table.name)["constrained_columns"]:
        ways_of(tx).change_key(tx, table)
