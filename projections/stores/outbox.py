"""The outbox of topics, as the publisher sees it: the first records, those that wait, topics that were lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from eventstore.backends.sql.ways import upsert
from projections.declaring.columns import ColumnType, Kind
from projections.declaring.view_topics import LakeChange, Row, named
from projections.errors import InvalidDefinition
from projections.stores.final_tables import final_tables

# What one transaction of Kafka's takes, and the memory that publishing needs: some 4 MB at 200 bytes a row.
CHUNK_ROWS: Final = 20_000
CHUNK_LENGTH: Final = 16 << 20  # and of long rows no more than this, in characters, or one


@dataclass(frozen=True)
class Chunk:
    """The first records that wait, by topic and by Delta table, and the number up to which they go."""

    rows: Mapping[str, Sequence[Row]]
    lakes: Mapping[str, LakeChange]
    last: int


def first_chunk(connection: sa.Connection, group: str, lakes: Sequence[str] = ()) -> Chunk | None:
    """The first records of a group, the newest of each key; None where none waits.

    A chunk that is published twice is the same to every reader, since no key is in it twice. ``lakes`` are Delta
    tables. With these, the connection is a transaction's: until it ends, no cut-over changes their columns.
    """
    changes = _changes(connection, lakes)
    records = outbox_tables(connection).records
    chunk = bounded(sa.select(records).where(records.c.group_name == group))
    newest = sa.select(sa.func.max(chunk.c.seq)).group_by(chunk.c.topic, chunk.c.key)
    query = sa.select(chunk.c.seq, chunk.c.topic, chunk.c.key, chunk.c.value).where(chunk.c.seq.in_(newest))
    selected = connection.execute(query.order_by(chunk.c.seq)).all()
    rows: dict[str, list[Row]] = {}
    for seq, topic, key, value in selected:
        if topic in changes:
            changes[topic].rows.append((seq, key, value))
        else:
            rows.setdefault(topic, []).append({"key": key, "value": value})
    waiting_lakes = {path: change for path, change in changes.items() if change.rows}
    return Chunk(rows, waiting_lakes, selected[-1].seq) if selected else None


def _changes(connection: sa.Connection, lakes: Sequence[str]) -> dict[str, LakeChange]:
    if not lakes:
        return {}
    topics = outbox_tables(connection).topics
    filled = connection.execute(sa.select(topics).where(topics.c.topic.in_(lakes)).with_for_update())
    return {row.topic: LakeChange(row.rows_of["key"], columns_of(row.rows_of["columns"]), []) for row in filled}


def bounded(records: sa.Select[Any]) -> sa.CTE:
    """The first of numbered records, as many as a transaction of Kafka's takes."""
    first = records.order_by(records.selected_columns.seq).limit(CHUNK_ROWS).cte("first")
    length = sa.func.coalesce(sa.func.length(first.c.value), 0)
    before = sa.func.sum(length).over(order_by=first.c.seq) - length
    sized = sa.select(*first.c, before.label("before")).cte("sized")
    return sa.select(sized).where(sized.c.before < CHUNK_LENGTH).cte("chunk")


def remove_upto(connection: sa.Connection, group: str, last: int) -> None:
    """Forget records that are published."""
    records = outbox_tables(connection).records
    connection.execute(sa.delete(records).where(records.c.group_name == group, records.c.seq <= last))


def waiting(connection: sa.Connection) -> dict[str, dict[str, int]]:
    """By group and topic, the records and final results that wait; 0 for a topic without any."""
    tables = outbox_tables(connection)
    counts: dict[str, dict[str, int]] = {}
    for group, topic in connection.execute(sa.select(tables.topics.c.group_name, tables.topics.c.topic)):
        counts.setdefault(group, {})[topic] = 0
    of = (tables.records.c.group_name, tables.records.c.topic)
    for group, topic, rows in connection.execute(sa.select(*of, sa.func.count()).group_by(*of)):
        counts.setdefault(group, {})[topic] = rows
    for group, topic, rows in connection.execute(_results_waiting(connection)):
        counts.setdefault(group, {})[topic] = rows
    return counts


def _results_waiting(connection: sa.Connection) -> sa.Select[str, str, int]:
    topics, results = final_tables(connection).topics, final_tables(connection).results
    theirs = sa.and_(results.c.group_name == topics.c.group_name, results.c.view == topics.c.view)
    rows = sa.select(sa.func.count()).where(theirs, results.c.seq > topics.c.upto).scalar_subquery()
    return sa.select(topics.c.group_name, topics.c.topic, rows).where(topics.c.filled)


def note_topics(connection: sa.Connection, ids: Mapping[str, str], *, made: Sequence[str]) -> None:
    """Note which topics exist now: recreated ones, by us or by others, lack what a view published.

    One of final results is filled again by its publisher, and one of rows by the next cut-over.
    """
    tables = outbox_tables(connection)
    known = {row.topic: row.topic_id for row in connection.execute(sa.select(tables.ids))}
    recreated = {topic for topic, id in ids.items() if known.get(topic, id) != id} | set(made)
    connection.execute(sa.update(tables.topics).where(tables.topics.c.topic.in_(recreated)).values(lost=True))
    results = final_tables(connection).topics
    empty = {"upto": 0, "ends": sa.null(), "revision": results.c.revision + 1}
    connection.execute(sa.update(results).where(results.c.topic.in_(recreated)).values(empty))
    for topic, id in ids.items():
        statement = upsert(connection, tables.ids).values(topic=topic, topic_id=id)
        connection.execute(statement.on_conflict_do_update(index_elements=["topic"], set_={"topic_id": id}))


def require_ours(
    connection: sa.Connection,
    group: str,
    *,
    rows: Mapping[str, str] | None = None,
    results: Mapping[str, str] | None = None,
) -> None:
    """Raise InvalidDefinition for a topic that is filled otherwise than by the view given for it.

    ``rows`` are the views whose rows fill a topic, by its name, ``results`` those whose final results do.
    """
    rows, results = rows or {}, results or {}
    of_rows, of_results = outbox_tables(connection).topics, final_tables(connection).topics
    for topics, what, ours in ((of_rows, "rows", rows), (of_results, "final results", results)):
        for row in connection.execute(sa.select(topics).where(topics.c.topic.in_([*rows, *results]))):
            if (row.group_name, row.view) != (group, ours.get(row.topic)):
                raise InvalidDefinition(
                    f"{named(row.topic)} holds the {what} of view {row.view!r} of group {row.group_name!r}",
                    remedy=f"give the view a {'table' if '/' in row.topic else 'topic'} of another name",
                    place=f"view {({**rows, **results})[row.topic]}",
                )


def lost(connection: sa.Connection, group: str) -> list[str]:
    """The topics of a group that were recreated and are not filled again."""
    topics = outbox_tables(connection).topics
    query = sa.select(topics.c.topic).where(topics.c.group_name == group, topics.c.lost)
    return list(connection.scalars(query))


def unfilled(connection: sa.Connection, topics: Sequence[str]) -> list[str]:
    """Those of the topics that no view of this database fills yet."""
    known = {
        topic
        for table in (outbox_tables(connection).topics, final_tables(connection).topics)
        for topic in connection.scalars(sa.select(table.c.topic))
    }
    return [topic for topic in topics if topic not in known]


@dataclass(frozen=True)
class OutboxTables:
    """``records`` in the order of ``seq``, a null value a tombstone; ``topics`` with the table each is equal to.

    ``ids`` tells a topic from another of its name, from before it is filled.
    """

    records: sa.Table
    topics: sa.Table
    ids: sa.Table


def said_columns(columns: Mapping[str, ColumnType]) -> list[list[Any]]:
    """The form in which ``rows_of`` has the columns of its table."""
    return [[name, *_said(kind)] for name, kind in columns.items()]


def columns_of(said: Sequence[Sequence[Any]]) -> Mapping[str, ColumnType]:
    """The columns that were stored in that form."""
    return {name: _column(*one) for name, *one in said}


def _said(kind: ColumnType) -> list[Any]:
    """The stored form of topics of flat views since the first release: their rows are recognized by it."""
    return [kind.kind, kind.precision, kind.scale, *([kind.shape] if kind.shape else [])]


def _column(kind: Kind, precision: int, scale: int, shape: str = "") -> ColumnType:
    return ColumnType(kind, precision, scale, shape=shape)


def _tables(prefix: str, schema: str | None) -> OutboxTables:
    metadata = sa.MetaData(schema=schema)
    records = sa.Table(
        f"{prefix}view_records",
        metadata,
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text),
        sa.Index(f"{prefix}view_records_by_group", "group_name", "seq"),
        sqlite_autoincrement=True,  # a deleted number is not used again
    )
    topics = sa.Table(
        f"{prefix}view_topics",
        metadata,
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("view", sa.Text, nullable=False),
        sa.Column("lost", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("rows_of", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False),
    )
    ids = sa.Table(
        f"{prefix}view_topic_ids",
        metadata,
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("topic_id", sa.Text, nullable=False),
    )
    return OutboxTables(records, topics, ids)


_IN_A_SCHEMA, _BY_NAME = _tables("", "factfold"), _tables("factfold_", None)


def outbox_tables(connection: sa.Connection) -> OutboxTables:
    """The tables as this database has them: in a schema of ours, where there are schemas."""
    return _IN_A_SCHEMA if connection.dialect.name == "postgresql" else _BY_NAME


def create_outbox_tables(connection: sa.Connection) -> None:
    """Create them unless they are there; the schema is."""
    tables = outbox_tables(connection)
    tables.records.metadata.create_all(connection, checkfirst=True)
