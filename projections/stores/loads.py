"""Loads of tables by executors: which are open, and which of their parts are written."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

# Spark may run a task twice, and both attempts may come to their end. A task may also outlive the driver that started
# it. An attempt therefore notes its part in the transaction of its rows. The second attempt finds the part noted, and a
# late one finds its load closed. Either takes its rows back.
SCHEMA = "factfold"
_METADATA = sa.MetaData(schema=SCHEMA)
LOADS = sa.Table(
    "loads",
    _METADATA,
    sa.Column("load", sa.Text, primary_key=True),
    sa.Column("relation", sa.Text, nullable=False, index=True),  # quoted, with its schema
)
PARTS = sa.Table(
    "parts",
    _METADATA,
    sa.Column("load", sa.ForeignKey(LOADS.c.load, ondelete="CASCADE"), primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
)


def create_loads_tables(connection: sa.Connection) -> None:
    """Create the tables unless they are there."""
    _METADATA.create_all(connection)


def close_loads(connection: sa.Connection, relations: Iterable[str]) -> None:
    """Let no task write into these tables any more; after they were emptied, in the transaction that did.

    Tasks that write hold their tables, and emptying has waited for them. Those that come later find no load.
    """
    connection.execute(sa.delete(LOADS).where(LOADS.c.relation.in_(list(relations))))


def close_loads_of(connection: sa.Connection, schema: str) -> None:
    """The same for all tables of a schema that was dropped: another one may get its name."""
    preparer = connection.dialect.identifier_preparer
    tables = f"{preparer.quote_identifier(schema)}."
    connection.execute(sa.delete(LOADS).where(LOADS.c.relation.startswith(tables, autoescape=True)))
