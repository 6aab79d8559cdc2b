"""What the tests of processes say of steps that are committed in parts, and of a worker that keeps its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection

from eventstore import SqlEventStore
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.process_rows import ProcessRows
from eventstore.errors import WrongExpectedVersion
from tests.conformance import test_processes as proofs
from tests.conformance.process_shop import Shop

SOURCE = "/shop"


@pytest.fixture
def shop(opened: Callable[[], SqlEventStore]) -> Callable[..., Shop]:
    return lambda *kinds: Shop(opened(), *kinds)


def test_the_planted_fault_is_seen_a_step_that_is_committed_in_parts(shop, monkeypatch):
    @contextmanager
    def in_parts(self: Database) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            try:
                yield connection
            finally:
                connection.commit()

    monkeypatch.setattr(Database, "writing", in_parts)

    def every_crash() -> None:
        for step in range(6):
            with pytest.MonkeyPatch.context() as patched:
                proofs.test_a_worker_that_dies_anywhere_repeats_nothing_and_loses_nothing(shop, patched, step)

    with pytest.raises((AssertionError, WrongExpectedVersion)):  # the stream's version tells that a row is behind it
        every_crash()


def test_the_planted_fault_is_seen_a_timer_that_stays_when_it_has_fired(shop, monkeypatch):
    monkeypatch.setattr(ProcessRows, "remove", lambda *_: 0)
    with pytest.raises(AssertionError):
        proofs.test_overdue_timers_fire_once_each_in_the_order_of_their_times(shop_of_one_batch(shop))


def test_the_planted_fault_is_seen_a_command_that_is_sent_under_another_id_each_time(shop, monkeypatch):
    from uuid import uuid4

    from eventstore.aggregates.dispatcher import Dispatcher

    once, remove = Dispatcher.once, ProcessRows.remove
    monkeypatch.setattr(Dispatcher, "once", lambda self, _: once(self, uuid4()))
    monkeypatch.setattr(ProcessRows, "remove", lambda *given: remove(*given) if len(given[2]) != 1 else 0)
    with pytest.raises(AssertionError):
        proofs.test_a_scheduled_command_is_sent_once_at_its_time_and_never_if_it_is_cancelled(shop_of_one_batch(shop))


def shop_of_one_batch(shop: Callable[..., Shop]) -> Callable[..., Shop]:
    """Shops whose workers do not drain for ever what stays due."""

    def made(*kinds: Any) -> Shop:
        found = shop(*kinds)
        worker = found.worker

        def bounded(**options: Any) -> Any:
            one = worker(**options)
            one.drain = one.run_once
            return one

        found.worker = bounded
        return found

    return made
