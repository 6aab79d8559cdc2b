"""The topics of final results: how far each has come, and the results that it lacks.

The table of the results is their outbox: it is appended to in the order of commits, and never changed. A topic is a
number up to which its results are sent. It is one of a view for ever, and of no generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.declaring.view_topics import Row
from projections.stores import outbox
from projections.stores.final_tables import final_tables


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
    results, topics = final_tables(connection).results, final_tables(connection).topics
    mine = sa.and_(topics.c.topic == topic, topics.c.group_name == group)
    entry = connection.execute(sa.select(topics).where(mine)).one_or_none()
    if entry is None:
        return None
    theirs = sa.and_(results.c.group_name == group, results.c.view == entry.view, results.c.seq > entry.upto)
    chunk = outbox.bounded(sa.select(results.c.seq, results.c.key, results.c.value).where(theirs))
    rows = connection.execute(sa.select(chunk.c.seq, chunk.c.key, chunk.c.value).order_by(chunk.c.seq)).all()
    ends = {int(partition): int(offset) for partition, offset in (entry.ends or {}).items()}
    sent: list[Row] = [{"key": key, "value": value} for _, key, value in rows]
    return Unsent(topic, sent, rows[-1].seq, ends, entry.revision) if rows else None


def last_noted(connection: sa.Connection, topic: str, *, most: int) -> set[str]:
    """The keys of the last results that are known to be in a topic."""
    results, topics = final_tables(connection).results, final_tables(connection).topics
    theirs = sa.and_(results.c.group_name == topics.c.group_name, results.c.view == topics.c.view)
    noted = sa.select(results.c.key).join(topics, theirs).where(topics.c.topic == topic, results.c.seq <= topics.c.upto)
    return set(connection.scalars(noted.order_by(results.c.seq.desc()).limit(most)))


def note_sent(connection: sa.Connection, unsent: Unsent, *, ends: Mapping[int, int]) -> bool:
    """Note that results are in their topic; False, and nothing is noted, where its row was changed meanwhile."""
    topics = final_tables(connection).topics
    same = sa.and_(topics.c.topic == unsent.topic, topics.c.revision == unsent.revision)
    noted = {"upto": unsent.last, "ends": {str(p): o for p, o in ends.items()}, "revision": unsent.revision + 1}
    return connection.execute(sa.update(topics).where(same).values(noted)).rowcount == 1


def take(connection: sa.Connection, group: str, views: Mapping[str, str]) -> None:
    """Let these topics, given with their views, be those of the generation that serves; others keep their numbers.

    A new one lacks every result. Raises InvalidDefinition for a topic of another view.
    """
    topics = final_tables(connection).topics
    for topic, view in views.items():
        new = upsert(connection, topics).values(topic=topic, group_name=group, view=view, filled=True)
        connection.execute(new.on_conflict_do_nothing(index_elements=["topic"]))
    outbox.require_ours(connection, group, results=views)
    filled = topics.c.topic.in_(list(views))
    # Unchanged rows stay unlocked for their publisher, which notes what it has sent.
    other = sa.and_(topics.c.group_name == group, topics.c.filled != filled)
    connection.execute(sa.update(topics).where(other).values(filled=filled))
