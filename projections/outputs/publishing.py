"""What a view's commits leave in the outbox, published to its topic: at least once, each key's records in their order.

The same chunk is merged into the Delta tables of views, each of which notes the numbers that it has.

`ResultPublisher` publishes final results, each exactly once.

A chunk is one transaction of Kafka's by the one producer of the group, and is removed from the outbox after it. If
the producer is killed in between, the next one publishes the chunk again. That changes nothing for a reader: no key is
in it twice, and nothing of the group came between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from eventstore.errors import FactfoldError, TopicMismatch, TopicMissing
from projections.connections import Connections
from projections.declaring.group import ProjectionGroup, lakes_of, results_topics, rows_topics, topics_of
from projections.declaring.view_topics import LakeTables, RowProducer, named
from projections.errors import ProjectionError
from projections.stores import outbox
from projections.stores.outbox import Unsent

if TYPE_CHECKING:
    from projections.stores.sql import TableStore

log = structlog.get_logger()

# What learns how many records of each topic wait.
Waiting = Callable[[Mapping[str, int]], None]


@dataclass
class ViewPublisher:
    """Publishes a group's outbox, and final results to the topics ``results``; made by ``opened_publisher``.

    A group without topics has no producer, and one without Delta tables no ``lakes``.
    """

    store: TableStore
    producer: RowProducer | None
    group: str
    results: ResultPublisher | None = None
    lakes: Mapping[str, LakeTables] = field(default_factory=dict)
    note_waiting: Waiting | None = None

    def publish(self) -> int:
        """Publish all that waits, chunk by chunk; returns the number of records."""
        published = 0
        self._tell()
        while chunk := self._next():
            self._write(chunk)
            with self.store.transaction() as connection:
                outbox.remove_upto(connection, self.group, chunk.last)
            published += sum(map(len, [*chunk.rows.values(), *(change.rows for change in chunk.lakes.values())]))
        published += 0 if self.results is None else self.results.publish()
        if published:
            self._tell()
            log.info("view records published", group=self.group, records=published)
        return published

    def _write(self, chunk: outbox.Chunk) -> None:
        if chunk.rows:
            assert self.producer is not None  # noqa: S101 - a topic that the group no longer has leaves no rows
            self.producer.send(chunk.rows)
        for path, change in chunk.lakes.items():
            self.lakes[path].write(path, self.group, change)

    def _next(self) -> outbox.Chunk | None:
        with self.store.transaction() if self.lakes else self.store.looking() as connection:
            return outbox.first_chunk(connection, self.group, list(self.lakes))

    def _tell(self) -> None:
        if self.note_waiting is not None:
            with self.store.looking() as connection:
                self.note_waiting(outbox.waiting(connection).get(self.group, {}))


@contextmanager
def opened_publisher(
    environment: Connections, group: ProjectionGroup, note_waiting: Waiting | None = None
) -> Iterator[ViewPublisher | None]:
    """The publisher of the topics and Delta tables of a group's views, None for a group without any.

    Raises TopicMismatch, InvalidDefinition for a log without topics, TopicMissing or ProjectionError for a lost one.
    """
    topics, lakes = list(topics_of(group.all_views)), lakes_of(group.all_views)
    if not topics and not lakes:
        yield None
        return
    prepare_topics(environment, group)
    store = environment.store
    with store.looking() as connection:
        _require_whole(outbox.lost(connection, group.name))
    with ExitStack() as opened:
        producer = opened.enter_context(environment.log.view_topics().producer(group.name)) if topics else None
        topics_of_results = list(results_topics(group.all_views))
        results = None if producer is None else ResultPublisher(store, producer, group.name, topics_of_results)
        tables = dict.fromkeys(lakes, environment.lake) if lakes else {}
        yield ViewPublisher(store, producer, group.name, results, tables, note_waiting)


def prepare_topics(environment: Connections, group: ProjectionGroup) -> None:
    """Make the topics and Delta tables of a group's views that are missing, and check the others.

    A missing one that a view has filled is noted: with rows it is filled again by the next cut-over, with final
    results by its publisher. Raises TopicMismatch for a topic of another shape, or with records of others,
    ProjectionError for a table with those, InvalidDefinition for one of another view.
    """
    views = group.all_views
    specs, lakes = [topic.spec for topic in topics_of(views)], lakes_of(views)
    if not specs and not lakes:
        return
    store = environment.store
    with store.looking() as connection:
        outbox.require_ours(connection, group.name, rows=rows_topics(views), results=results_topics(views))
    if specs:
        topics, names = environment.log.view_topics(), [spec.name for spec in specs]
        made = topics.ensure(specs)
        _note(store, environment.log.topic_ids(names), made, topics.holding)
    if lakes:
        tables = environment.lake
        made = tables.ensure(lakes)
        _note(store, tables.ids(lakes), made, tables.holding)


def _note(
    store: TableStore,
    ids: Mapping[str, str],
    made: Sequence[str],
    holding: Callable[[Sequence[str]], Sequence[str]],
) -> None:
    with store.transaction() as connection:
        outbox.note_topics(connection, ids, made=made)
        unfilled = outbox.unfilled(connection, list(ids))
    for place in holding(unfilled):
        raise _error(
            place,
            TopicMismatch,
            f"{named(place)} holds records that no view of this database wrote",
            "delete it, or give the view one of another name: deleted rows would stay in it",
        )


def _require_whole(lost: Sequence[str]) -> None:
    for place in lost:
        cause = f"{named(place)} was deleted, and is not what its view is"
        raise _error(place, TopicMissing, cause, "rebuild the group: the cut-over fills it again")


def _error(place: str, of_topics: type[FactfoldError], cause: str, remedy: str) -> FactfoldError:
    if "/" in place:
        return ProjectionError(cause, remedy=remedy, place=place, code="lake-unusable")
    return of_topics(cause, remedy=remedy, place=place)


class ResultPublisher:
    """Publishes the final results of a group's views, each exactly once. It is a part of the group's publisher.

    Kafka and the database commit one after the other. The database therefore notes where a topic ended before a chunk
    goes there. A publisher that follows a killed one reads what is behind that place, and leaves out what is there
    already. Opening its producer shuts out every earlier one. Nothing comes behind what it has read but its own.
    """

    def __init__(self, store: TableStore, producer: RowProducer, group: str, topics: Sequence[str]) -> None:
        self._store, self._producer, self._group, self._topics = store, producer, group, topics
        self._ahead: dict[str, set[str]] = {}  # by topic, keys in it that the database does not know to be there

    def publish(self) -> int:
        """Publish all that waits, chunk by chunk; returns the number of records.

        Raises TopicMissing for a topic that was deleted since the publisher was opened, and what the broker refuses.
        """
        return sum(self._publish(topic) for topic in self._topics)

    def _publish(self, topic: str) -> int:
        published = 0
        while unsent := self._next(topic):
            published += self._send(unsent)
        return published

    def _next(self, topic: str) -> Unsent | None:
        with self._store.looking() as connection:
            return outbox.first_unsent(connection, self._group, topic)

    def _send(self, unsent: Unsent) -> int:
        topic, before = unsent.topic, self._ends(unsent.topic)
        if topic not in self._ahead:
            self._ahead[topic] = self._unknown(topic, self._producer.keys_between(topic, unsent.ends, before))
        ahead = self._ahead[topic]
        rows = [row for row in unsent.rows if row["key"] not in ahead] if ahead else unsent.rows
        if rows:
            self._producer.send({topic: rows})
        ahead.difference_update(row["key"] for row in (unsent.rows if ahead else ()))
        with self._store.transaction() as connection:
            # While any is ahead it has to be found again, so the place from which to look stays.
            noted = outbox.note_sent(connection, unsent, ends=unsent.ends if ahead else before)
        if not noted:
            del self._ahead[topic]  # another one has sent some, or the topic was created again: look again
        return len(rows)

    def _ends(self, topic: str) -> Mapping[int, int]:
        try:
            return self._producer.ends(topic)
        except TopicMissing as error:
            raise TopicMissing(
                f"topic {topic!r} was deleted, and final results wait for it",
                remedy="start the runner again: it creates the topic, and publishes every result",
                place=topic,
            ) from error

    def _unknown(self, topic: str, keys: set[str]) -> set[str]:
        """Those of the keys that the database does not know: the others are of its last notes, one after the other."""
        if not keys:
            return keys
        with self._store.looking() as connection:
            return keys - outbox.last_noted(connection, topic, most=len(keys))
