"""Subscriptions outwait an absent broker and an absent database by the policy of runners and routers."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command

from eventstore import Restarts, run_async_subscription, run_subscription, subscribing, subscription
from eventstore.delivery.attempt import DeliveryReport
from eventstore.errors import (
    BrokerRefused,
    BrokerUnreachable,
    DeclarationError,
    FactfoldError,
    OffsetsExpired,
    RegistryUnreachable,
    StoreUnavailable,
    SubscriptionError,
    TopicMissing,
)
from eventstore.restarts import PASSING, Outwaiting
from factfold.cli.events import subscriptions
from factfold.cli.views import projections, topics
from projections import errors as of_projections
from tests.errors import raises
from tests.ledger import Payment

PASS = [BrokerRefused, BrokerUnreachable, RegistryUnreachable, StoreUnavailable]
END = [TopicMissing, OffsetsExpired, SubscriptionError, DeclarationError]
BATCH = "a batch"


@subscription("payment", group="scales")
def weigh(event: Payment.Received) -> None:
    """Nothing arrives here."""


@subscription("payment", group="scales")
async def weigh_later(event: Payment.Received) -> None:
    """Nothing arrives here."""


def failure(kind: type[FactfoldError]) -> FactfoldError:
    return kind("cause", remedy="do something")


class Script:
    """What each start of a subscription ends with, before it is open or while it runs; the last one by its stop."""

    def __init__(self, *ends: Any, opens: bool) -> None:
        self.ends, self.opens, self.opened, self.stop = list(ends), opens, 0, threading.Event()

    def opening(self) -> None:
        self.opened += 1
        if not self.opens:
            self._end()

    def run(self, on_batch: Any) -> None:
        while self.ends and self.ends[0] == BATCH:
            self.ends.pop(0)
            on_batch(DeliveryReport(handled=1))
        self._end()
        self.stop.set()

    def _end(self) -> None:
        if self.ends and self.ends[0] != BATCH:
            raise failure(self.ends.pop(0))


def delivered(monkeypatch: pytest.MonkeyPatch, script: Script, limit: int, *, later: bool) -> DeliveryReport:
    policy = Restarts(limit=limit, first=0.0)

    @contextmanager
    def opened(declared: Any, **_: Any) -> Any:
        script.opening()
        yield SimpleNamespace(
            run=lambda *, stop, on_batch: script.run(on_batch), report=DeliveryReport(handled=script.opened)
        )

    @asynccontextmanager
    async def opened_later(declared: Any, **_: Any) -> Any:
        script.opening()

        async def run(*, stop: asyncio.Event, on_batch: Any) -> None:
            script.run(on_batch)
            stop.set()

        yield SimpleNamespace(run=run, report=DeliveryReport(handled=script.opened))

    monkeypatch.setattr(subscribing, "open_subscriber", opened)
    monkeypatch.setattr(subscribing, "open_async_subscriber", opened_later)
    if not later:
        return run_subscription(weigh, stop=script.stop, restarts=policy)
    return asyncio.run(_later(policy))


async def _later(policy: Restarts) -> DeliveryReport:
    return await run_async_subscription(weigh_later, stop=asyncio.Event(), restarts=policy)


both = pytest.mark.parametrize("later", [False, True], ids=["a function", "a coroutine function"])
whenever = pytest.mark.parametrize("opens", [False, True], ids=["before it is open", "while it runs"])


@both
@whenever
@pytest.mark.parametrize("kind", PASS)
def test_what_passes_leads_to_another_start(monkeypatch: Any, kind: Any, opens: bool, later: bool) -> None:
    script = Script(kind, kind, opens=opens)
    report = delivered(monkeypatch, script, 2, later=later)
    assert script.opened == 3
    assert report.handled == (1 + 2 + 3 if opens else 3)


@both
@whenever
@pytest.mark.parametrize("kind", END)
def test_what_does_not_pass_ends_it_at_once(monkeypatch: Any, kind: Any, opens: bool, later: bool) -> None:
    script = Script(kind, opens=opens)
    with pytest.raises(kind, match="cause"):
        delivered(monkeypatch, script, 2, later=later)
    assert script.opened == 1


@both
@whenever
def test_it_gives_up_loudly_after_so_many_failures_in_a_row(monkeypatch: Any, opens: bool, later: bool) -> None:
    script = Script(*[StoreUnavailable] * 3, opens=opens)
    with raises(
        SubscriptionError, code="gave-up", match="the subscription failed 3 times in a row, at last: cause"
    ) as gave_up:
        delivered(monkeypatch, script, 2, later=later)
    assert isinstance(gave_up.value.__cause__, StoreUnavailable)
    assert "payment" in str(gave_up.value.place)


@both
def test_a_batch_between_two_failures_makes_the_count_begin_anew(monkeypatch: Any, later: bool) -> None:
    down = [BrokerUnreachable] * 2
    script = Script(*down, BATCH, *down, BATCH, opens=True)
    delivered(monkeypatch, script, 2, later=later)
    assert script.opened == 5


def test_what_passes_for_subscriptions_passes_for_projections_too() -> None:
    assert set(PASSING) == set(PASS)
    assert set(PASSING) < set(of_projections.PASSING)


@pytest.mark.parametrize("commands", [projections.app, topics.branches, subscriptions.app])
def test_every_command_that_runs_for_long_takes_the_same_setting(commands: Any) -> None:
    run = get_command(commands).commands["run"]  # type: ignore[attr-defined]
    (option,) = [parameter for parameter in run.params if parameter.name == "restarts"]
    assert (option.opts, option.envvar, option.default) == (["--restarts"], "FACTFOLD_RESTARTS", Restarts().limit)


class AwayBroker:
    """Tries to reach a broker by a call that no signal interrupts, at an address that takes no connections yet."""

    def __init__(self) -> None:
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.calls, self.failed, self.stop = 0, threading.Event(), threading.Event()
        self.outwaiting = Outwaiting(Restarts(first=0.01), what="x", place="y", gave_up=SubscriptionError)

    def work(self) -> str:
        self.calls += 1
        if self.calls == 1:
            self.failed.set()
            raise BrokerUnreachable("no broker", remedy="start one", place=f"broker.invalid:9092,{self.place}")
        return "reached"


@pytest.fixture
def broker():
    away = AwayBroker()
    yield away
    away.listener.close()


def test_a_stop_while_a_broker_is_away_waits_for_no_further_call(broker):
    threading.Thread(target=lambda: broker.failed.wait() and broker.stop.set()).start()
    began = time.monotonic()
    assert broker.outwaiting.once(broker.work, stop=broker.stop) is None
    assert (broker.calls, time.monotonic() - began < 3) == (1, True)


def test_a_broker_that_takes_connections_again_is_called_again(broker):
    threading.Thread(target=lambda: broker.failed.wait() and broker.listener.listen()).start()
    assert broker.outwaiting.once(broker.work, stop=broker.stop) == "reached"
    assert broker.calls == 2


def test_a_wait_has_a_longest_one_after_however_many_failures():
    assert Restarts().delay(10_000) == Restarts().longest


def test_an_attempt_that_fails_slowly_is_no_recovery_where_only_success_is_one():
    slow = Outwaiting(Restarts(limit=2), what="x", place="y", healthy_after=math.inf)
    error = BrokerUnreachable("no broker", remedy="start one")
    for _ in range(2):
        slow.failed(error, lasted=3600.0)
    with pytest.raises(BrokerUnreachable):
        slow.failed(error, lasted=3600.0)
