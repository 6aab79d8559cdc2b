"""The outbox of view topics: records written in the transaction that changes the view, published after it.

Only the generation that serves writes to it, under the lock of its run's row: so the numbers of a group's records rise
in the order of its commits, and whoever reads on from a number misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from eventstore.backends.sql.upserts import upsert
from projections.columns import ColumnType
from projections.errors import InvalidDefinition
from projections.tablestore import runs
from projections.tablestore.json_rows import json_object
from projections.tablestore.layout import GenerationLayout, ViewLayout
from projections.tablestore.outbox_tables import outbox_tables
from projections.tablestore.runs import SERVING, Run
from projections.view_topics import Row

# Some 4 MB at 200 bytes a row: what one transaction of Kafka's takes, and the memory that publishing needs.
CHUNK_ROWS: Final = 20_000

_RECORD: Final = ("group_name", "topic", "key", "value")


@dataclass(frozen=True)
class Rows:
    """A table of a view's rows, as the topic's records are made of them."""

    table: sa.TableClause
    key: Sequence[str]
    columns: Mapping[str, ColumnType]

    @staticmethod
    def of(view: ViewLayout, table: sa.Table | None = None) -> Rows:
        """Of a view, or of a table with its columns."""
        return Rows(view.view if table is None else table, view.definition.key, view.columns)

    @staticmethod
    def of_json(stored: Mapping[str, Any]) -> Rows:
        """As the topic's row keeps it, for the time when the definition may be gone."""
        columns = {name: ColumnType(*kind) for name, *kind in stored["columns"]}
        names: list[sa.ColumnClause[Any]] = [sa.column(name) for name in columns]
        return Rows(sa.table(stored["table"], *names, schema=stored["schema"]), stored["key"], columns)

    def to_json(self) -> dict[str, Any]:
        """The form it is kept in."""
        columns = [[name, kind.kind, kind.precision, kind.scale] for name, kind in self.columns.items()]
        return {"schema": self.table.schema, "table": self.table.name, "key": list(self.key), "columns": columns}

    def keys(self, connection: sa.Connection) -> sa.ColumnElement[str]:
        """The record's key."""
        return json_object(connection, self.table, [(name, self.columns[name]) for name in self.key])

    def values(self, connection: sa.Connection) -> sa.ColumnElement[str]:
        """The record's value."""
        return json_object(connection, self.table, self.columns.items())

    def records(self, connection: sa.Connection) -> sa.Select[str, str]:
        """A record for each row."""
        return sa.select(self.keys(connection), self.values(connection))


def hand_over_batch(connection: sa.Connection, layout: GenerationLayout, run: Run) -> None:
    """Add what a batch changes in views with a topic, if the run serves; the caller holds the run's row."""
    published = list(_published(layout))
    if not published or not _serves(connection, run):
        return
    for topic, view in published:
        rows = Rows.of(view, view.result)
        value = sa.case((view.result.c["_deleted"], sa.null()), else_=rows.values(connection))
        _add(connection, run.group, topic, sa.select(rows.keys(connection), value).select_from(view.result))


def _published(layout: GenerationLayout) -> Iterator[tuple[str, ViewLayout]]:
    return ((view.definition.topic.name, view) for view in layout.views.values() if view.definition.topic is not None)


def _serves(connection: sa.Connection, run: Run) -> bool:
    found = runs.state(connection, run)
    return found is not None and found.status == SERVING


def hand_over_generation(connection: sa.Connection, layout: GenerationLayout, group: str) -> None:
    """Add what makes each topic equal to this generation's view; the caller holds all rows of the group's runs.

    That is the difference to the view whose rows the topic holds, tombstones included, or the whole view. Raises
    InvalidDefinition for a topic of another view.
    """
    topics = outbox_tables(connection).topics
    published = dict(_published(layout))
    for topic, view in published.items():
        rows, filled = Rows.of(view), _filled_with(connection, topic, view, group)
        _add(connection, group, topic, _changed(connection, filled, rows))
        if filled is not None:
            _add(connection, group, topic, _gone(connection, Rows.of_json(filled.rows_of), rows))
        kept = {"group_name": group, "view": view.name, "lost": False, "rows_of": rows.to_json()}
        statement = upsert(connection, topics).values(topic=topic, **kept)
        connection.execute(statement.on_conflict_do_update(index_elements=["topic"], set_=kept))
    left = sa.delete(topics).where(topics.c.group_name == group, topics.c.topic.not_in(list(published)))
    connection.execute(left)


def _filled_with(connection: sa.Connection, topic: str, view: ViewLayout, group: str) -> sa.Row[Any] | None:
    topics = outbox_tables(connection).topics
    found = connection.execute(sa.select(topics).where(topics.c.topic == topic)).one_or_none()
    if found is not None and (found.group_name, found.view) != (group, view.name):
        raise InvalidDefinition(
            f"topic {topic!r} holds the rows of view {found.view!r} of group {found.group_name!r}",
            remedy="give the view a topic of another name",
            place=f"view {view.name}",
        )
    return found


def _changed(connection: sa.Connection, filled: sa.Row[Any] | None, after: Rows) -> sa.SelectBase:
    """The records that the topic lacks; compared as records, since columns and types may have changed."""
    if filled is None or filled.lost:
        return after.records(connection)
    return sa.except_(after.records(connection), Rows.of_json(filled.rows_of).records(connection))


def _gone(connection: sa.Connection, before: Rows, after: Rows) -> sa.SelectBase:
    """A tombstone for each key that is no more."""
    gone = sa.except_(*(sa.select(rows.keys(connection).label("key")) for rows in (before, after))).subquery()
    return sa.select(gone.c.key, sa.null())


def _add(connection: sa.Connection, group: str, topic: str, records: sa.SelectBase) -> None:
    """Append records, given by key and value, whose keys differ."""
    found = records.subquery()
    rows = sa.select(sa.literal(group), sa.literal(topic), *found.c)
    connection.execute(sa.insert(outbox_tables(connection).records).from_select(_RECORD, rows))


@dataclass(frozen=True)
class Chunk:
    """The first records that wait, by topic, and the number up to which they go."""

    rows: Mapping[str, Sequence[Row]]
    last: int


def first_chunk(connection: sa.Connection, group: str) -> Chunk | None:
    """The first records of a group, the newest of each key; None where none waits.

    A chunk that is published twice is the same to every reader, since no key is in it twice.
    """
    records = outbox_tables(connection).records
    wanted = sa.select(records).where(records.c.group_name == group).order_by(records.c.seq).limit(CHUNK_ROWS)
    chunk = wanted.cte("chunk")
    newest = sa.select(sa.func.max(chunk.c.seq)).group_by(chunk.c.topic, chunk.c.key)
    query = sa.select(chunk.c.seq, chunk.c.topic, chunk.c.key, chunk.c.value).where(chunk.c.seq.in_(newest))
    found = connection.execute(query.order_by(chunk.c.seq)).all()
    rows: dict[str, list[Row]] = {}
    for _, topic, key, value in found:
        rows.setdefault(topic, []).append({"key": key, "value": value})
    return Chunk(rows, found[-1].seq) if found else None


def remove_upto(connection: sa.Connection, group: str, last: int) -> None:
    """Forget records that are published."""
    records = outbox_tables(connection).records
    connection.execute(sa.delete(records).where(records.c.group_name == group, records.c.seq <= last))


def waiting(connection: sa.Connection) -> dict[str, dict[str, int]]:
    """By group and topic, the records that wait; 0 for a topic without any."""
    tables = outbox_tables(connection)
    found: dict[str, dict[str, int]] = {}
    for group, topic in connection.execute(sa.select(tables.topics.c.group_name, tables.topics.c.topic)):
        found.setdefault(group, {})[topic] = 0
    of = (tables.records.c.group_name, tables.records.c.topic)
    for group, topic, rows in connection.execute(sa.select(*of, sa.func.count()).group_by(*of)):
        found.setdefault(group, {})[topic] = rows
    return found


def note_lost(connection: sa.Connection, topics: Sequence[str]) -> None:
    """Note that topics were made anew: those that a view had filled lack what it published."""
    kept = outbox_tables(connection).topics
    if topics:
        connection.execute(sa.update(kept).where(kept.c.topic.in_(topics)).values(lost=True))


def lost(connection: sa.Connection, group: str) -> list[str]:
    """The topics of a group that were made anew and are not filled again."""
    topics = outbox_tables(connection).topics
    query = sa.select(topics.c.topic).where(topics.c.group_name == group, topics.c.lost)
    return list(connection.scalars(query))


def unfilled(connection: sa.Connection, topics: Sequence[str]) -> list[str]:
    """Those of the topics that no view of this database fills yet."""
    known = set(connection.scalars(sa.select(outbox_tables(connection).topics.c.topic)))
    return [topic for topic in topics if topic not in known]
