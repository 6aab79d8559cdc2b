"""The dead letters of subscriptions that read a store, in the handler's database: one row a group, topic and event.

The topic has the store's schema in it where that is not the default one. Two tenants that imported the same events, or
two topics of one group, have a row each.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column, Connection, DateTime, Integer, MetaData, Table, Text, Uuid, inspect

_KEY: Final = "subscriber, topic, event_id"


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
    constraint = inspect(tx).get_pk_constraint(table.name)
    if "topic" in constraint["constrained_columns"]:
        return
    if tx.dialect.name == "postgresql":
        change = f'DROP CONSTRAINT "{constraint["name"]}", ADD PRIMARY KEY ({_KEY})'
        tx.exec_driver_sql(f"ALTER TABLE {table.name} {change}")
    else:
        _copy(tx, table)


def _copy(tx: Connection, table: Table) -> None:
    """SQLite changes no key: the rows move into a table of the new form."""
    driver: Any = tx.connection.driver_connection
    if not driver.in_transaction:  # which SQLite's driver does not begin before it changes tables
        tx.exec_driver_sql("BEGIN IMMEDIATE")
    former, columns = f"{table.name}_former", ", ".join(column.name for column in table.columns)
    tx.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO {former}")
    table.create(tx)
    tx.exec_driver_sql(f"INSERT INTO {table.name} ({columns}) SELECT {columns} FROM {former}")  # noqa: S608 - ours
    tx.exec_driver_sql(f"DROP TABLE {former}")
