"""The outbox of topics, as the publisher sees it: the first records, those that wait, topics that were lost.

The table of final results is their outbox: it is appended to in the order of commits, and never changed. A topic of
these is a number up to which its results are sent. It is one of a view for ever, and of no generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.declaring.columns import ColumnType
from projections.declaring.view_topics import LakeChange, Row, named
from projections.errors import InvalidDefinition
from projections.stores.own_tables import own_tables

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
    records = own_tables(connection).records
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
    topics = own_tables(connection).topics
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
    records = own_tables(connection).records
    connection.execute(sa.delete(records).where(records.c.group_name == group, records.c.seq <= last))


def waiting(connection: sa.Connection) -> dict[str, dict[str, int]]:
    """By group and topic, the records and final results that wait; 0 for a topic without any."""
    tables = own_tables(connection)
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
    topics, results = own_tables(connection).final_topics, own_tables(connection).results
    theirs = sa.and_(results.c.group_name == topics.c.group_name, results.c.view == topics.c.view)
    rows = sa.select(sa.func.count()).where(theirs, results.c.seq > topics.c.upto).scalar_subquery()
    return sa.select(topics.c.group_name, topics.c.topic, rows).where(topics.c.filled)


def note_topics(connection: sa.Connection, ids: Mapping[str, str], *, made: Sequence[str]) -> None:
    """Note which topics exist now: recreated ones, by us or by others, lack what a view published.

    One of final results is filled again by its publisher, and one of rows by the next cut-over.
    """
    tables = own_tables(connection)
    known = {row.topic: row.topic_id for row in connection.execute(sa.select(tables.ids))}
    recreated = {topic for topic, id in ids.items() if known.get(topic, id) != id} | set(made)
    connection.execute(sa.update(tables.topics).where(tables.topics.c.topic.in_(recreated)).values(lost=True))
    results = own_tables(connection).final_topics
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
    of_rows, of_results = own_tables(connection).topics, own_tables(connection).final_topics
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
    topics = own_tables(connection).topics
    query = sa.select(topics.c.topic).where(topics.c.group_name == group, topics.c.lost)
    return list(connection.scalars(query))


def unfilled(connection: sa.Connection, topics: Sequence[str]) -> list[str]:
    """Those of the topics that no view of this database fills yet."""
    known = {
        topic
        for table in (own_tables(connection).topics, own_tables(connection).final_topics)
        for topic in connection.scalars(sa.select(table.c.topic))
    }
    return [topic for topic in topics if topic not in known]


def said_columns(columns: Mapping[str, ColumnType]) -> list[list[Any]]:
    """The form in which ``rows_of`` has the columns of its table."""
    return [[name, *_said(kind)] for name, kind in columns.items()]


def columns_of(said: Sequence[Sequence[Any]]) -> Mapping[str, ColumnType]:
    """The columns that were stored in that form."""
    return {
        name: ColumnType(kind, precision, scale, shape="".join(shape)) for name, kind, precision, scale, *shape in said
    }


def _said(kind: ColumnType) -> list[Any]:
    """The stored form of topics of flat views since the first release: their rows are recognized by it."""
    return [kind.kind, kind.precision, kind.scale, *([kind.shape] if kind.shape else [])]


@dataclass(frozen=True)
class Unsent:
    """The first results that a topic lacks by the database, and the number up to which they go.

    ``ends`` is where the topic ended when all results before these were in it and none of these: behind it is what may
    have been sent without the database's knowledge.
    """

    topic: str
    rows: Sequence[Row]
    last: int
    ends: Mapping[int, int]
    revision: int


def first_unsent(connection: sa.Connection, group: str, topic: str) -> Unsent | None:
    """The first results of a topic that are not known to be in it, as many as a chunk has; None where none waits."""
    results, topics = own_tables(connection).results, own_tables(connection).final_topics
    mine = sa.and_(topics.c.topic == topic, topics.c.group_name == group)
    entry = connection.execute(sa.select(topics).where(mine)).one_or_none()
    if entry is None:
        return None
    theirs = sa.and_(results.c.group_name == group, results.c.view == entry.view, results.c.seq > entry.upto)
    chunk = bounded(sa.select(results.c.seq, results.c.key, results.c.value).where(theirs))
    rows = connection.execute(sa.select(chunk.c.seq, chunk.c.key, chunk.c.value).order_by(chunk.c.seq)).all()
    ends = {int(partition): int(offset) for partition, offset in (entry.ends or {}).items()}
    sent: list[Row] = [{"key": key, "value": value} for _, key, value in rows]
    return Unsent(topic, sent, rows[-1].seq, ends, entry.revision) if rows else None


def last_noted(connection: sa.Connection, topic: str, *, most: int) -> set[str]:
    """The keys of the last results that are known to be in a topic."""
    results, topics = own_tables(connection).results, own_tables(connection).final_topics
    theirs = sa.and_(results.c.group_name == topics.c.group_name, results.c.view == topics.c.view)
    noted = sa.select(results.c.key).join(topics, theirs).where(topics.c.topic == topic, results.c.seq <= topics.c.upto)
    return set(connection.scalars(noted.order_by(results.c.seq.desc()).limit(most)))


def note_sent(connection: sa.Connection, unsent: Unsent, *, ends: Mapping[int, int]) -> bool:
    """Note that results are in their topic; False, and nothing is noted, where its row was changed meanwhile."""
    topics = own_tables(connection).final_topics
    same = sa.and_(topics.c.topic == unsent.topic, topics.c.revision == unsent.revision)
    noted = {"upto": unsent.last, "ends": {str(p): o for p, o in ends.items()}, "revision": unsent.revision + 1}
    return connection.execute(sa.update(topics).where(same).values(noted)).rowcount == 1


def take_results(connection: sa.Connection, group: str, views: Mapping[str, str]) -> None:
    """Let these topics, given with their views, be those of the generation that serves; others keep their numbers.

    A new one lacks every result. Raises InvalidDefinition for a topic of another view.
    """
    topics = own_tables(connection).final_topics
    for topic, view in views.items():
        new = upsert(connection, topics).values(topic=topic, group_name=group, view=view, filled=True)
        connection.execute(new.on_conflict_do_nothing(index_elements=["topic"]))
    require_ours(connection, group, results=views)
    filled = topics.c.topic.in_(list(views))
    # Unchanged rows stay unlocked for their publisher, which notes what it has sent.
    other = sa.and_(topics.c.group_name == group, topics.c.filled != filled)
    connection.execute(sa.update(topics).where(other).values(filled=filled))
