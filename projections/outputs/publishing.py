"""What a view's commits leave in the outbox, published to its topic: at least once, each key's records in their order.

Final results are published separately, each exactly once (`projections.outputs.publishing_results`).

A chunk is one transaction of Kafka's by the one producer of the group, and is removed from the outbox after it. If
the producer is killed in between, the next one publishes the chunk again. That changes nothing for a reader: no key is
in it twice, and nothing of the group came between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from eventstore.errors import TopicMismatch, TopicMissing
from projections.connections import Connections
from projections.declaring.filled_topics import results_topics, rows_topics, topics_of
from projections.declaring.group import ProjectionGroup
from projections.declaring.view_topics import RowProducer
from projections.errors import InvalidDefinition
from projections.outputs.publishing_results import ResultPublisher
from projections.stores import outbox

if TYPE_CHECKING:
    from projections.stores.port import Transactions

log = structlog.get_logger()

# What learns how many records of each topic wait.
Waiting = Callable[[Mapping[str, int]], None]


class ViewPublisher:
    """Publishes a group's outbox, and final results to the topics ``results``; made by ``opened_publisher``."""

    def __init__(
        self,
        store: Transactions,
        producer: RowProducer,
        group: str,
        *,
        results: Sequence[str] = (),
        note_waiting: Waiting | None = None,
    ) -> None:
        self._store = store
        self._producer = producer
        self._group = group
        self._results = ResultPublisher(store, producer, group, results)
        self._note_waiting = note_waiting

    def publish(self) -> int:
        """Publish all that waits, chunk by chunk; returns the number of records."""
        published = 0
        self._tell()
        while chunk := self._next():
            self._producer.send(chunk.rows)
            with self._store.transaction() as connection:
                outbox.remove_upto(connection, self._group, chunk.last)
            published += sum(map(len, chunk.rows.values()))
        published += self._results.publish()
        if published:
            self._tell()
            log.info("view records published", group=self._group, records=published)
        return published

    def _next(self) -> outbox.Chunk | None:
        with self._store.looking() as connection:
            return outbox.first_chunk(connection, self._group)

    def _tell(self) -> None:
        if self._note_waiting is not None:
            with self._store.looking() as connection:
                self._note_waiting(outbox.waiting(connection).get(self._group, {}))


@contextmanager
def opened_publisher(
    environment: Connections, group: ProjectionGroup, note_waiting: Waiting | None = None
) -> Iterator[ViewPublisher | None]:
    """The publisher of the topics of a group's views, None for a group without any.

    Raises TopicMismatch, InvalidDefinition for a log without topics, and TopicMissing where one was lost.
    """
    if not list(topics_of(group.all_views)):
        yield None
        return
    prepare_topics(environment, group)
    store = _outbox(environment, group)
    with store.looking() as connection:
        _require_whole(outbox.lost(connection, group.name))
    with environment.log.view_topics().producer(group.name) as producer:
        results = list(results_topics(group.all_views))
        yield ViewPublisher(store, producer, group.name, results=results, note_waiting=note_waiting)


def prepare_topics(environment: Connections, group: ProjectionGroup) -> None:
    """Make the topics of a group's views that are missing, and check the others.

    A missing topic that a view has filled is noted: with rows it is filled again by the next cut-over, with final
    results by its publisher. Raises TopicMismatch for a topic of another shape, or with records of others,
    InvalidDefinition for one of another view.
    """
    specs = [topic.spec for topic in topics_of(group.all_views)]
    if not specs:
        return
    store, topics, views = _outbox(environment, group), environment.log.view_topics(), group.all_views
    with store.looking() as connection:
        outbox.require_ours(connection, group.name, rows=rows_topics(views), results=results_topics(views))
    made = topics.ensure(specs)
    ids = environment.log.topic_ids([spec.name for spec in specs])
    with store.transaction() as connection:
        outbox.note_topics(connection, ids, made=made)
        unfilled = outbox.unfilled(connection, [spec.name for spec in specs])
    _require_empty(topics.holding(unfilled))


def _outbox(environment: Connections, group: ProjectionGroup) -> Transactions:
    outbox = environment.store.outbox
    if outbox is not None:
        return outbox
    raise InvalidDefinition(
        f"group {group.name!r} has views with a topic, which are published from an outbox that a database keeps",
        remedy="leave topic=… away, or keep the group in PostgreSQL",
        place=environment.store.place,
    )


def _require_empty(foreign: Sequence[str]) -> None:
    for topic in foreign:
        raise TopicMismatch(
            f"topic {topic!r} holds records that no view of this database wrote",
            remedy="delete it, or give the view a topic of another name: deleted rows would stay in it",
            place=topic,
        )


def _require_whole(lost: Sequence[str]) -> None:
    for topic in lost:
        raise TopicMissing(
            f"topic {topic!r} was deleted, and is not what its view is",
            remedy="rebuild the group: the cut-over fills the topic again",
            place=topic,
        )
