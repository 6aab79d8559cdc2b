"""Readers of PostgreSQL stay behind transactions still open; a naive reader shows what that prevents."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from sqlalchemy import select

from eventstore import ANY, NO_STREAM, Aggregate, Position, RecordedEvent, SqlEventStore, event
from eventstore.store import FenceStatus
from tests.waiting import wait_until

SEED = 20130101
WRITERS = 16
APPENDS_EACH = 25


class Meter(Aggregate):
    @event
    class Read:
        number: int


@pytest.fixture
def store(database: Callable[[], str]) -> Iterator[SqlEventStore]:
    with SqlEventStore(database()) as store:
        store.create_tables()
        store.register(Meter)
        yield store


class NaiveReader:
    """Asks for `position > last`, as everybody does first."""

    def __init__(self, store: SqlEventStore) -> None:
        self._store = store
        self.last = 0
        self.seen: list[tuple[str, int]] = []

    def poll(self) -> None:
        events = self._store.tables.events.c
        query = select(events.position, events.stream, events.version).where(events.position > self.last)
        with self._store.engine.connect() as connection:
            for position, stream, version in connection.execute(query.order_by(events.position)):
                self.seen.append((stream, version))
                self.last = position


class FencedReader:
    """Follows the store by `read_all`, keeping the position of the last event as its checkpoint."""

    def __init__(self, store: SqlEventStore) -> None:
        self._store = store
        self.checkpoint: Position | None = None
        self.seen: list[tuple[str, int]] = []

    def poll(self) -> None:
        for recorded in self._store.read_all(after=self.checkpoint):
            self.seen.append((recorded.stream, recorded.version))
            self.checkpoint = recorded.position


def test_events_of_an_open_transaction_are_waited_for_and_not_skipped(store: SqlEventStore) -> None:
    naive, fenced = NaiveReader(store), FencedReader(store)
    with store.engine.connect() as slow, slow.begin():
        store.append("meter-slow", [Meter.Read(number=1)], expected=NO_STREAM, connection=slow)
        store.append("meter-fast", [Meter.Read(number=2)], expected=NO_STREAM)
        naive.poll()
        fenced.poll()
        assert fenced.seen == []
    naive.poll()
    fenced.poll()
    assert sorted(fenced.seen) == [("meter-fast", 0), ("meter-slow", 0)]
    assert naive.seen == [("meter-fast", 0)], "the naive reader was meant to skip the slow event"


def test_the_fence_says_what_it_hides_for_how_long_and_by_whom(store: SqlEventStore) -> None:
    with store.engine.connect() as slow, slow.begin():
        slow.exec_driver_sql("set application_name to 'slow import'")
        store.append("meter-slow", [Meter.Read(number=1)], expected=NO_STREAM, connection=slow)
        store.append("meter-fast", [Meter.Read(number=2)], expected=NO_STREAM)
        fence = store.fence()
        assert fence.waiting == 1  # the slow one is not even committed
        assert fence.age > 0
        assert fence.holder.startswith("slow import of postgres in database test_")
    # Whoever else writes in the cluster holds it too, for as long as that takes.
    wait_until(lambda: store.fence() == FenceStatus(0, 0.0, None))


def test_the_age_of_somebody_else_s_transaction_is_not_for_everybody(store: SqlEventStore) -> None:
    role = f"reader_{uuid.uuid4().hex[:8]}"
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"create role {role} login password 'x'; grant select on events to {role}")
    with store.engine.connect() as slow, slow.begin():
        store.append("meter-slow", [Meter.Read(number=1)], expected=NO_STREAM, connection=slow)
        with SqlEventStore(store.engine.url.set(username=role, password="x")) as reader:
            fence = reader.fence()
    assert (fence.waiting, fence.age) == (0, None)
    assert fence.holder.startswith("a session of postgres in database test_")
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"drop owned by {role}; drop role {role}")


def test_a_stream_stays_in_order_when_an_earlier_transaction_appends_later(store: SqlEventStore) -> None:
    with store.engine.connect() as early, early.begin():
        early.exec_driver_sql("select pg_current_xact_id()")
        store.append("meter-1", [Meter.Read(number=0)], expected=NO_STREAM)
        store.append("meter-1", [Meter.Read(number=1)], expected=0, connection=early)
    order = [recorded.version for recorded in store.read_all()]
    assert order == [0, 1]
    assert _versions_by_plain_xid(store) == [1, 0], "the plain transaction id was meant to show 1 before 0"


def _versions_by_plain_xid(store: SqlEventStore) -> list[int]:
    """Order events by the transaction that wrote them: order_xid without regard to the stream's last."""
    query = "select version from events order by xmin::text::bigint, position"
    with store.engine.connect() as connection:
        return list(connection.exec_driver_sql(query).scalars())


def test_a_rolled_back_transaction_holds_nobody_up(store: SqlEventStore) -> None:
    with store.engine.connect() as doomed:
        transaction = doomed.begin()
        store.append("meter-doomed", [Meter.Read(number=1)], expected=NO_STREAM, connection=doomed)
        transaction.rollback()
    store.append("meter-1", [Meter.Read(number=2)], expected=NO_STREAM)
    assert [recorded.stream for recorded in store.read_all()] == ["meter-1"]


def test_readers_hold_nobody_up_while_they_work(store: SqlEventStore) -> None:
    store.append("meter-1", [Meter.Read(number=n) for n in range(1500)], expected=NO_STREAM)
    half_read = store.read_all()
    next(half_read)
    store.append("meter-2", [Meter.Read(number=1)], expected=NO_STREAM)
    assert [recorded.stream for recorded in store.read_all(category="meter")][-1] == "meter-2"
    assert len(list(half_read)) == 1500


def test_nothing_is_skipped_or_disordered_while_writers_delay_and_roll_back(store: SqlEventStore) -> None:
    naive, fenced = NaiveReader(store), FencedReader(store)
    committed = _under_load(store, lambda: (naive.poll(), fenced.poll()))
    fenced.poll()
    naive.poll()
    assert sorted(fenced.seen) == sorted(committed), f"seed {SEED}"
    assert _disordered(fenced.seen) == []
    skipped = set(committed) - set(naive.seen)
    assert skipped or _disordered(naive.seen), "the load was too gentle to catch even a naive reader"


def _under_load(store: SqlEventStore, poll: Callable[[], object]) -> list[tuple[str, int]]:
    """Poll while writers delay 20 % of their commits and roll 5 % back; return what was committed."""
    running = threading.Event()
    running.set()
    poller = threading.Thread(target=lambda: [poll() for _ in iter(running.is_set, False)])
    poller.start()
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            written = list(pool.map(lambda writer: _write(store, writer), range(WRITERS)))
    finally:
        running.clear()
        poller.join()
    return [place for places in written for place in places]


def _write(store: SqlEventStore, writer: int) -> list[tuple[str, int]]:
    chance, pause, written = Random(SEED + writer), threading.Event(), []
    for number in range(APPENDS_EACH):
        with store.engine.connect() as connection:
            transaction = connection.begin()
            stream = f"meter-{writer}"
            result = store.append(stream, [Meter.Read(number=number)], expected=ANY, connection=connection)
            if chance.random() < 0.2:
                pause.wait(chance.uniform(0.005, 0.05))
            if chance.random() < 0.05:
                transaction.rollback()
                continue
            transaction.commit()
            written.append((stream, result.version))
    return written


def _disordered(seen: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the events seen other than right after their stream's previous version."""
    next_version: dict[str, int] = {}
    wrong = []
    for stream, version in seen:
        if version != next_version.get(stream, 0):
            wrong.append((stream, version))
        next_version[stream] = version + 1
    return wrong


def test_an_append_inside_the_callers_transaction_goes_with_it(store: SqlEventStore) -> None:
    with store.engine.connect() as connection, connection.begin():
        store.append("meter-1", [Meter.Read(number=1)], expected=NO_STREAM, connection=connection)
        result = store.append("meter-1", [Meter.Read(number=2)], expected=0, connection=connection)
        assert store.head("meter-1") is None
    stored: list[RecordedEvent] = list(store.read_stream("meter-1"))
    assert [recorded.version for recorded in stored] == [0, 1]
    assert result.positions[0] == stored[1].position
