"""A replay beside a subscriber that handles the same event at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, SqlEventStore, subscription
from eventstore.inbox import Inbox
from eventstore.inspection import Replay, Selection
from tests.ledger import LEDGER, METADATA, Payment, amounts
from tests.waiting import wait_until


@subscription("payment", group="ledger")
def book(event: Payment.Received, tx: sa.Connection) -> None:
    tx.execute(sa.insert(LEDGER).values(amount=event.amount))


@pytest.fixture
def store(database: Any) -> Iterator[SqlEventStore]:
    with SqlEventStore(database()) as opened:
        opened.create_tables()
        METADATA.create_all(opened.engine)
        opened.append("payment-1", [Payment.Received(amount=n) for n in (1, 2)], expected=ANY)
        yield opened


def test_an_event_that_a_subscriber_handles_at_the_same_moment_is_left_to_it(store: SqlEventStore) -> None:
    first = next(store.read_stream("payment-1"))
    inbox = Inbox(store.engine, "ledger", topic="payment")
    inbox.create_tables()
    reports: list[Any] = []
    replay = Replay(store, book, Selection(streams=("payment-1",)))
    thread = threading.Thread(target=lambda: reports.append(replay.run()))
    with inbox.begin() as tx:
        inbox.claim(tx, [first.id.hex])
        thread.start()
        wait_until(lambda: _waiting(store.engine) == 1)
        tx.execute(sa.insert(LEDGER).values(amount=100))
    thread.join(30)
    assert [(report.handled, report.overtaken) for report in reports] == [(1, 1)]
    assert amounts(store.engine) == [100, 2]


def _waiting(engine: sa.Engine) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(query).scalar_one())
