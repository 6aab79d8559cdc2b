"""Readers of a store in PostgreSQL wait for open transactions and skip no event of theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from eventstore import NO_STREAM, SqlEventStore
from eventstore.store import FenceStatus
from tests.fence_load import FencedReader, Meter
from tests.waiting import wait_until


@pytest.fixture
def metered(database: Callable[[], str]) -> Iterator[SqlEventStore]:
    with SqlEventStore(database()) as metered:
        metered.create_tables()
        metered.register(Meter)
        yield metered


def test_events_of_an_open_transaction_are_waited_for_and_not_skipped(metered):
    fenced = FencedReader(metered)
    with metered.engine.connect() as slow, slow.begin():
        metered.append("meter-slow", [Meter.Read(number=1)], expected=NO_STREAM, connection=slow)
        metered.append("meter-fast", [Meter.Read(number=2)], expected=NO_STREAM)
        fenced.poll()
        assert fenced.seen == []
    fenced.poll()
    assert sorted(fenced.seen) == [("meter-fast", 0), ("meter-slow", 0)]


def test_the_fence_says_what_it_hides_for_how_long_and_by_whom(metered):
    with metered.engine.connect() as slow, slow.begin():
        slow.exec_driver_sql("set application_name to 'slow import'")
        metered.append("meter-slow", [Meter.Read(number=1)], expected=NO_STREAM, connection=slow)
        metered.append("meter-fast", [Meter.Read(number=2)], expected=NO_STREAM)
        fence = metered.fence()
        assert fence.waiting == 1  # the slow one is not even committed
        assert fence.age > 0
        assert fence.holder.startswith("slow import of postgres in database test_")
    # Whoever else writes in the cluster holds it too, for as long as that takes.
    wait_until(lambda: metered.fence() == FenceStatus(0, 0.0, None))


def test_the_age_of_somebody_else_s_transaction_is_not_for_everybody(metered):
    role = f"reader_{uuid.uuid4().hex[:8]}"
    with metered.engine.begin() as connection:
        connection.exec_driver_sql(f"create role {role} login password 'x'; grant select on events to {role}")
    with metered.engine.connect() as slow, slow.begin():
        metered.append("meter-slow", [Meter.Read(number=1)], expected=NO_STREAM, connection=slow)
        with SqlEventStore(metered.engine.url.set(username=role, password="x")) as reader:
            fence = reader.fence()
    assert (fence.waiting, fence.age) == (0, None)
    assert fence.holder.startswith("a session of postgres in database test_")
    with metered.engine.begin() as connection:
        connection.exec_driver_sql(f"drop owned by {role}; drop role {role}")


def test_a_stream_stays_in_order_when_an_earlier_transaction_appends_later(metered):
    with metered.engine.connect() as early, early.begin():
        early.exec_driver_sql("select pg_current_xact_id()")
        metered.append("meter-1", [Meter.Read(number=0)], expected=NO_STREAM)
        metered.append("meter-1", [Meter.Read(number=1)], expected=0, connection=early)
    order = [recorded.version for recorded in metered.read_all()]
    assert order == [0, 1]
    assert _versions_by_plain_xid(metered) == [1, 0], "the plain transaction id was meant to show 1 before 0"


def _versions_by_plain_xid(metered: SqlEventStore) -> list[int]:
    """Order events by the transaction that wrote them: order_xid without regard to the stream's last."""
    query = "select version from events order by xmin::text::bigint, position"
    with metered.engine.connect() as connection:
        return list(connection.exec_driver_sql(query).scalars())


def test_readers_hold_nobody_up_while_they_work(metered):
    metered.append("meter-1", [Meter.Read(number=n) for n in range(1500)], expected=NO_STREAM)
    half_read = metered.read_all()
    next(half_read)
    metered.append("meter-2", [Meter.Read(number=1)], expected=NO_STREAM)
    assert [recorded.stream for recorded in metered.read_all(category="meter")][-1] == "meter-2"
    assert len(list(half_read)) == 1500
