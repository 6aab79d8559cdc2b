"""Our own tables: runs, the outbox of topics, and final results.

They are in a schema of ours where there are schemas, and have its name before theirs elsewhere. A table of runs that an
earlier release made is given the columns it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from eventstore.backends.sql.ways import ways_of

SCHEMA = "factfold"


@dataclass(frozen=True)
class OwnTables:
    """The tables as one database has them.

    Of the outbox, ``records`` are in the order of ``seq``, a null value a tombstone; ``topics`` has the table that each
    is equal to. ``ids`` tells a topic from another of its name, from before it is filled.

    Of final results, ``results`` are in the order they were given out, ``late`` changes in the order they came,
    ``passed`` is by view. ``final_topics`` says up to which number the results are in a topic, and where it ended
    before the last of them were sent.
    """

    runs: sa.Table
    records: sa.Table
    topics: sa.Table
    ids: sa.Table
    results: sa.Table
    late: sa.Table
    passed: sa.Table
    final_topics: sa.Table


def _json(*, none_as_null: bool = False) -> sa.JSON:
    return sa.JSON(none_as_null=none_as_null).with_variant(JSONB(none_as_null=none_as_null), "postgresql")


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def _text(name: str, *, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=key, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, default=0)


def _time(name: str, *, nullable: bool) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=sa.func.now())


def _tables(prefix: str, schema: str | None) -> OwnTables:
    metadata = sa.MetaData(schema=schema)

    def table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
        return sa.Table(f"{prefix}{name}", metadata, *columns)

    def listed(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
        """Keys and values in the order of their numbers, of which a deleted one is not used again."""
        kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
        number = sa.Column("seq", kind, primary_key=True, autoincrement=True)
        own: list[sa.schema.SchemaItem] = [_text("key"), sa.Column("value", sa.Text)]
        own = [number, _text("group_name"), *columns[:1], *own, *columns[1:]]
        return sa.Table(f"{prefix}{name}", metadata, *own, sqlite_autoincrement=True)

    runs = table(
        "runs",
        _text("group_name", key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        _text("fingerprint"),
        _text("status"),  # building → built → serving → retired
        sa.Column("token", sa.Text),
        sa.Column("progress", _json()),
        _time("updated_at", nullable=True),
        # Since 0.1.0 was begun; a table without them is altered, and its rows know no version.
        sa.Column("version", sa.Integer),
        sa.Column("holder", sa.Text),
        sa.Column("built", _json()),
        _flag("paused"),
        _flag("held"),
    )
    records = listed("view_records", _text("topic"), sa.Index(f"{prefix}view_records_by_group", "group_name", "seq"))
    topics = table(
        "view_topics", _text("topic", key=True), _text("group_name"), _text("view"), _flag("lost"),
        sa.Column("rows_of", _json(), nullable=False),
    )  # fmt: skip
    ids = table("view_topic_ids", _text("topic", key=True), _text("topic_id"))
    results = listed(
        "final_results", _text("view"), _time("at", nullable=False), sa.UniqueConstraint("group_name", "view", "key")
    )
    late = listed("late_changes", _text("view"), _text("reason"), _time("at", nullable=False))
    passed = table(
        "final_times", _text("group_name", key=True), _text("view", key=True),
        sa.Column("upto", sa.BigInteger, nullable=False), sa.Column("next_due", sa.BigInteger),
    )  # fmt: skip
    final_topics = table(
        "final_topics", _text("topic", key=True), _text("group_name"), _text("view"),
        sa.Column("filled", sa.Boolean, nullable=False),  # by the generation that serves
        _number("upto"), sa.Column("ends", _json(none_as_null=True)), _number("revision"),
    )  # fmt: skip
    sa.Index(f"{prefix}late_changes_of_view", late.c.group_name, late.c.view)
    sa.Index(f"{prefix}final_results_by_number", results.c.group_name, results.c.view, results.c.seq)
    return OwnTables(runs, records, topics, ids, results, late, passed, final_topics)


_IN_A_SCHEMA, _BY_NAME = _tables("", SCHEMA), _tables(f"{SCHEMA}_", None)


def own_tables(connection: sa.Connection) -> OwnTables:
    """The tables as this database has them."""
    return _IN_A_SCHEMA if ways_of(connection).has_schemas else _BY_NAME


def create_own_tables(connection: sa.Connection) -> None:
    """Create the tables, and their schema where there are schemas, unless they are there; add what they lack."""
    own, looked = own_tables(connection), sa.inspect(connection)
    if own.runs.schema and not looked.has_schema(own.runs.schema):  # a role that only reads may lack the right
        connection.execute(sa.schema.CreateSchema(own.runs.schema, if_not_exists=True))
    own.runs.metadata.create_all(connection, checkfirst=True)
    for index in own.results.indexes:  # one of which earlier tables do not have
        index.create(connection, checkfirst=True)
    present = {column["name"] for column in sa.inspect(connection).get_columns(own.runs.name, schema=own.runs.schema)}
    for column in own.runs.columns:
        if column.name not in present:
            _add(connection, own.runs, column)


def _add(connection: sa.Connection, runs: sa.Table, column: sa.Column[object]) -> None:
    """Add a column; of two processes at once the second finds it there (SQLite holds the write lock throughout)."""
    unless_there = "IF NOT EXISTS " if ways_of(connection).has_sessions else ""
    table = connection.dialect.identifier_preparer.format_table(runs)
    declared = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
    connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {unless_there}{declared}"))
