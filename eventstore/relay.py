"""Store → Kafka for places without Kafka Connect: every record once, in order, by one leader.

The relay keeps no checkpoint. Its topics say how far it has come: a checkpoint of its own would be
written before its records or after them, and a crash in between would lose some or repeat some. A batch is one
transaction of Kafka's, by a producer whose id all relays of a store share. Opening one shuts out the last leader,
wherever it hangs, and ends what it had not committed; only then is the end of the topics worth reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Final

from eventstore.backends.sql.outbox import BEFORE_ALL, Outbox, OutboxRecord, PartitionEnd
from eventstore.backends.sql.outbox import RelayReport as RelayReport
from eventstore.backends.sql.outbox import RelayStatus as RelayStatus
from eventstore.backends.sql.store import SqlEventStore
from eventstore.closing import Closing
from eventstore.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ProducerFenced,
    RelayError,
    StoreUnavailable,
    TopicMissing,
)
from eventstore.identifiers import Position
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import Publisher
from eventstore.kafka.tails import Partition, event_id_of, last_records, strange_end, wait_for_transactions
from eventstore.restarts import Outwaiting, Restarts
from eventstore.settings import Settings
from eventstore.shown_urls import shown_url
from eventstore.topics import SCHEMAS_TOPIC, TopicRecord, event_topic, schemas_topic

if TYPE_CHECKING:
    from eventstore.metrics import RelayMetrics

# How soon an event is seen once it is behind the fence: two indexed queries each time.
GLANCE_SECONDS: Final = 0.02
# How soon a standby relay takes over from one that stopped.
STANDBY_SECONDS: Final = 0.5
_CONNECTOR_SECONDS: Final = 10.0
# Pauses of 1, 2, 4 … 30 seconds: a minute and a half without a broker or a database.
_RESTARTS: Final = Restarts()
_PASSING: Final = (BrokerUnreachable, BrokerRefused, ProducerFenced, StoreUnavailable, TopicMissing)
# Debezium's EventRouter puts this header first, and the fixed layout has none of its name.
_DEBEZIUM_HEADER: Final = "id"


class Relay:
    """Publishes a store's events and schemas to Kafka, with the same records as Debezium's outbox connector.

    Of several relays of one store, one publishes and the others stand by.

    Args:
        store: A store in PostgreSQL.
        settings: The settings of Kafka.
        ignored_slots: Replication slots that read the published tables and are no outbox connector's.
        metrics: Counts for Prometheus.

    Raises:
        UnsupportedBackend: The store is not in PostgreSQL.

    Examples:
        >>> Relay(store, Settings()).run(stop=Event())
    """

    def __init__(
        self,
        store: SqlEventStore,
        settings: Settings,
        *,
        ignored_slots: Collection[str] = (),
        metrics: RelayMetrics | None = None,
    ) -> None:
        self._store, self._settings, self._ignored_slots = store, settings, ignored_slots
        self._metrics = metrics
        self._has_served = False
        self.report = RelayReport()

    def run(
        self, *, stop: Event, once: bool = False, on_state: Callable[[str], None] = lambda state: None
    ) -> RelayReport:
        """Publish until `stop` is set, or with `once` until everything behind the fence is published.

        A temporary failure is waited out for a minute and a half, but not before the first success.

        Args:
            stop: Ends the run.
            once: End when nothing waits.
            on_state: Is called with "standing by" and "leading".

        Raises:
            RelayError: A connector publishes the store too, or something else filled a topic.
            StoreNotPrepared: Another cluster numbered the events.
            TopicMismatch: A topic has another partition count.
            ProducerFenced: Another relay took over.
            FactfoldError: The store or the brokers are not ready, not reachable or refuse.
        """
        outwaiting = Outwaiting(
            _RESTARTS,
            what="relay",
            place=shown_url(self._store.engine.url),
            passes=lambda error: self._has_served and isinstance(error, _PASSING),
            counted_by=self._metrics,
        )
        outwaiting.once(lambda: self._lead(stop, once, on_state, outwaiting), stop=stop)
        return self.report

    def _lead(self, stop: Event, once: bool, on_state: Callable[[str], None], outwaiting: Outwaiting) -> None:
        """Stand by for the lock, then publish for as long as its connection lives."""
        with Outbox(self._store.engine, self._store.tables) as outbox:
            outbox.check_publishable(self._ignored_slots)
            if not outbox.lead():
                self._has_served = True
                self._tell("standing by", on_state)
                while not outbox.lead():
                    if stop.wait(STANDBY_SECONDS):
                        return
            with Term(self._store, outbox, self._settings) as term:
                self._has_served = True
                self._tell("leading", on_state)
                self._publish(term, outbox, stop, once, outwaiting)

    def _tell(self, state: str, on_state: Callable[[str], None]) -> None:
        if self._metrics is not None:
            self._metrics.state(state)
        on_state(state)

    def _publish(self, term: Term, outbox: Outbox, stop: Event, once: bool, outwaiting: Outwaiting) -> None:
        looked_at = time.monotonic()
        while not stop.is_set():
            before = self.report
            self.report, was_busy = term.step(before)
            if self.report != before:
                outwaiting.recovered()
            if was_busy and self._metrics is not None:
                self._metrics.published(self.report)
            if time.monotonic() - looked_at > _CONNECTOR_SECONDS:
                outbox.check_publishable(self._ignored_slots)
                looked_at = time.monotonic()
            if not was_busy and (once or stop.wait(GLANCE_SECONDS)):
                return


class Term(Closing):
    """One leader's time: from shutting out the last one to the first failure. Nothing of it is used again."""

    def __init__(self, store: SqlEventStore, outbox: Outbox, settings: Settings) -> None:
        self._store, self._outbox, self._settings = store, outbox, settings
        self._ahead: list[OutboxRecord] = []
        self._schemas: set[str] = set()
        self._publisher = Publisher(settings, outbox.identity())
        try:
            self.resume()
        except BaseException:
            self._publisher.close()
            raise

    def resume(self) -> None:
        """Find out from the topics what they lack; those that are missing are made."""
        categories = self._store.categories()
        topics = [schemas_topic(), *(event_topic(c.topic, partitions=c.partitions) for c in categories)]
        ensure_topics(self._settings, topics)
        wait_for_transactions(self._settings, [topic.name for topic in topics])
        ends = partition_ends(self._store, self._outbox, self._settings)
        self._ends: dict[Partition, Position] = {(end.topic, end.partition): end.position for end in ends}
        self._furthest = max(self._ends.values(), default=BEFORE_ALL)
        self._after = _just_before(self._outbox.first_missing(ends)) or self._furthest

    def step(self, report: RelayReport) -> tuple[RelayReport, bool]:
        """Publish the next page, if there is one; return the report after it, and whether there was."""
        page = self._page()
        events = page if self._after >= self._furthest else [record for record in page if self._is_missing(record)]
        # Asked for after the page was read: what the page's events need is there.
        schemas = self._missing_schemas()
        after = page[-1].position if page else self._after
        if events or schemas:
            self._publisher.send([*schemas, *events])
            # Read before the commit: it is done while Kafka works, and shows that the lock is still ours.
            self._ahead = self._outbox.page(after)
            self._publisher.commit()
            self._schemas.update(record.key for record in schemas)
            report = report.plus(events=len(events), schemas=len(schemas))
        self._after = after
        return report, bool(page or schemas)

    def close(self) -> None:
        """Throw away what is not committed."""
        self._publisher.close()

    def _page(self) -> list[OutboxRecord]:
        page, self._ahead = self._ahead or self._outbox.page(self._after), []
        if all((record.topic, record.partition) in self._ends for record in page):
            return page
        self.resume()
        page = self._outbox.page(self._after)
        for record in page:
            if (record.topic, record.partition) not in self._ends:
                raise RelayError(
                    f"event {record.key!r} goes to {record.topic}[{record.partition}], which is no category's",
                    remedy="correct the table `categories`: topic and partition count have to be those of its events",
                    place=f"position {record.position.position}",
                    code="topic-not-relayed",
                )
        return page

    def _missing_schemas(self) -> list[OutboxRecord]:
        """Return those that are new here and that no other store has published either."""
        new = self._outbox.schemas(self._schemas)
        if not new:
            return []
        there = {(record.key or b"").decode() for record in read_range(self._settings, SCHEMAS_TOPIC)}
        self._schemas.update(record.key for record in new if record.key in there)
        return [record for record in new if record.key not in there]

    def _is_missing(self, record: OutboxRecord) -> bool:
        return record.position > self._ends[record.topic, record.partition]


def relay_status(store: SqlEventStore, settings: Settings) -> RelayStatus:
    """Return the leader, and how much waits. Asks once. Raises the errors of `Relay.run`.

    Returns:
        `leader`, and for each topic in `waiting` its `topic` and `events`.

    Examples:
        >>> [(one.topic, one.events) for one in relay_status(store, Settings()).waiting]
        [('order', 12)]
    """
    with Outbox(store.engine, store.tables) as outbox:
        waiting = outbox.waiting(partition_ends(store, outbox, settings))
        return RelayStatus(outbox.leader(), tuple(waiting))


def partition_ends(store: SqlEventStore, outbox: Outbox, settings: Settings) -> list[PartitionEnd]:
    """Return how far every partition of every category has come, by the last record it holds; RelayError."""
    categories = store.categories()
    records = last_records(settings, [category.topic for category in categories])
    ids = {place: _event_id(record) for place, record in records.items()}
    positions = outbox.positions(ids.values())
    for place, event_id in ids.items():
        if event_id not in positions:
            raise _unknown_event(records[place])
    return [
        replace(end, position=positions[ids[end.topic, end.partition]]) if (end.topic, end.partition) in ids else end
        for category in categories
        for end in (PartitionEnd(category.name, category.topic, number) for number in range(category.partitions))
    ]


def _event_id(record: TopicRecord) -> str:
    if _DEBEZIUM_HEADER in dict(record.headers):
        raise RelayError(
            f"{record.topic!r} was filled by a Debezium connector, which orders events by their commits",
            remedy="keep the outbox connector, or publish the store into a topic of another name",
            place=record.place,
            code="topic-not-relayed",
        )
    if (event_id := event_id_of(record)) is None:
        raise _unknown_event(record)
    return str(event_id)


def _unknown_event(record: TopicRecord) -> RelayError:
    return RelayError(
        strange_end(record),
        remedy="give the category a topic of its own. After a restore of an older backup, a new one",
        place=record.place,
        code="topic-not-relayed",
    )


def _just_before(position: Position | None) -> Position | None:
    return None if position is None else Position(position.order_xid, position.position - 1)
