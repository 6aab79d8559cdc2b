"""Processes in a store: one commit a step, each command and each timer once, whoever dies where; on both databases."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from eventstore.backends.sql.process_rows import ProcessRows
from eventstore.errors import InvalidEventData
from eventstore.scheduling import Schedule
from tests.conformance.process_shop import (
    Counting,
    Family,
    Former,
    Hurried,
    Named,
    Newer,
    Patient,
    Reminder,
    Shop,
)
from tests.notes import Note
from tests.unit.eventstore.fulfilment import Order
from tests.waiting import wait_until

pytestmark = pytest.mark.postgres_in_faults


@pytest.mark.both_databases
def test_a_process_runs_from_its_start_to_its_end(shop):
    shop.begin(stock=5, quantity=2)
    shop.work()
    shop.pay("o1")
    shop.work()
    assert shop.types("order-o1") == ["order.placed", "order.shipped"]
    assert shop.types("item-tea") == ["item.received", "item.reserved"]
    assert shop.steps("o1") == [
        ("order.placed", "running"), ("item.reserve", "running"), ("payment.received", "done")
    ]  # fmt: skip
    assert shop.rows("factfold_scheduled") == 0


@pytest.mark.both_databases
def test_overdue_timers_fire_once_each_in_the_order_of_their_times(shops):
    shop = shops(Reminder)
    for minutes, order in ((30, "late"), (10, "early"), (20, "middle")):
        shop.send(order, Order.place, sku=str(minutes), quantity=1, amount=Decimal(1))
    shop.deliver()
    shop.pass_time(days=3)
    assert shop.worker(batch=2).drain().timers == 3
    assert shop.worker().drain().timers == 0
    fired = [event.stream for event in shop.store.read_all(category="reminder") if event.version == 1]
    assert fired == ["reminder-early", "reminder-middle", "reminder-late"]


def noted(shop, stream):
    return [int(event.data["text"]) for event in shop.store.read_stream(stream)]


@pytest.mark.both_databases
def test_what_is_decided_at_one_moment_is_done_in_the_order_of_its_declaration(shops):
    shop = shops(Counting)
    shop.place("o1", quantity=9)
    later = Schedule(shop.store, clock=lambda: shop.now).after(timedelta(minutes=2))
    for number in range(9):
        later.send("alone", Note.write, text=str(number))
    shop.work()
    shop.pass_time(minutes=5)
    shop.work()
    assert [noted(shop, "note-out"), noted(shop, "note-alone")] == [[*range(9)]] * 2
    assert [name for name, _ in shop.steps("o1")] == ["order.placed", *"edcba"]


@pytest.mark.both_databases
def test_an_instance_with_many_commands_holds_up_no_other(shops):
    shop = shops(Counting)
    shop.place("many", quantity=200)
    shop.place("few", quantity=1)
    shop.deliver()
    first = shop.worker(batch=10).run_once()
    assert first.commands == 10
    by_sender = Counter(event.metadata.correlation_id for event in shop.store.read_stream("note-out"))
    assert sorted(by_sender.values()) == [1, 9]


@pytest.mark.both_databases
def test_what_is_due_after_the_year_9999_is_never_due_and_cannot_be_scheduled(shops):
    shop = shops(Patient)
    shop.place("o1")
    shop.work()
    shop.pass_time(days=365_000)
    shop.work()
    assert noted(shop, "note-out") == [2]
    assert shop.rows("factfold_scheduled") == 2
    schedule = Schedule(shop.store, clock=lambda: shop.now)
    for refused in (schedule.after, schedule.after(timedelta(1)).expiring):
        with pytest.raises(InvalidEventData, match="beyond the year 9999"):
            refused(timedelta.max)


def test_a_timer_of_a_process_that_has_ended_does_nothing(shops):
    shop = shops(Reminder)
    shop.send("o1", Order.place, sku="10", quantity=1, amount=Decimal(1))
    shop.deliver()
    shop.processes.cancel("reminder", "o1", compensate=False)
    shop.insert_timer("o1", "remind")
    shop.pass_time(hours=1)
    assert shop.worker().drain().timers == 1
    assert shop.steps("o1")[-1] == ("cancel", "cancelled")


@pytest.mark.both_databases
def test_a_worker_that_dies_anywhere_repeats_nothing_and_loses_nothing(shops):
    for step in STEPS:
        for call in range(3):
            with pytest.MonkeyPatch.context() as patched:
                if not dies_at(patched, step, call, shops()):
                    break
        assert call, step


def dies_at(monkeypatch, step, call, shop):
    """Whether a worker died behind the call of that number of a step, and all was well in the end."""
    shop.begin(stock=5, quantity=2)
    crashes = crash_at(monkeypatch, step, call)
    for _ in range(3):
        surviving(crashes, shop.deliver)
        surviving(crashes, lambda: shop.worker().drain())
    shop.pass_time(minutes=31)
    for _ in range(3):
        surviving(crashes, lambda: shop.worker().drain())
    assert shop.types("item-tea") == ["item.received", "item.reserved", "item.released"]
    assert shop.types("order-o1") == ["order.placed", "order.cancelled"]
    assert [name for name, _ in shop.steps("o1")] == ["order.placed", "item.reserve", "payment", "item.release"]
    assert shop.status("o1") == "compensated"
    return crashes.happened


class Crash(BaseException):
    pass


class Crashes:
    def __init__(self, left):
        self.left = left

    @property
    def happened(self):
        return self.left < 0


STEPS = ("schedule", "save", "remove", "claim", "cancel", "withdraw")


def crash_at(monkeypatch, step, call):
    """Die once, behind one of the statements of a step."""
    crashes = Crashes(call)
    real = getattr(ProcessRows, step)

    def dying(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        crashes.left -= 1
        if crashes.left == -1:
            raise Crash
        return found

    monkeypatch.setattr(ProcessRows, step, dying)
    return crashes


def surviving(crashes, work):
    try:
        work()
    except Crash:
        assert crashes.happened


def test_a_payment_before_its_order_waits_for_it(shop):
    shop.stock(5)
    shop.pay("o1")
    shop.deliver()
    (waiting,) = shop.processes.instances()
    assert (waiting.status, waiting.waits_for) == ("unstarted", "the event that starts it")
    shop.place("o1")
    shop.work()
    assert shop.status("o1") == "done"
    assert shop.types("order-o1")[-1] == "order.shipped"


def test_a_command_that_expired_is_not_sent_and_its_process_hears_so(shops):
    shop = shops(Hurried)
    shop.begin(stock=5)
    shop.deliver()
    shop.pass_time(minutes=2)
    shop.worker().drain()
    assert shop.types("item-tea") == ["item.received"]
    assert shop.dispatcher.load(Hurried, "o1").heard == "expired"


def test_an_instance_ends_by_the_code_it_began_with_or_is_moved(shops):
    first = shops(Former)
    first.place("old", "moved")
    first.deliver()
    second = Shop(first.store, Newer)
    second.seen = first.seen
    first.place("new")
    second.deliver()
    second.processes.migrate("talk", "moved")
    for order in ("old", "moved", "new"):
        first.pay(order)
    second.deliver()
    said = {order: second.processes.steps("talk", order)[-1].data["state"] for order in ("old", "moved", "new")}
    assert said == {"old": '{"said": "former"}', "moved": '{"said": "newer"}', "new": '{"said": "newer"}'}
    assert second.processes.show("talk", "moved").code == 2


def test_an_event_without_a_stream_id_that_a_process_can_have_is_an_error_of_that_event(shops):
    shop = shops(Named)
    shop.send("o1", Order.place, sku="", quantity=1, amount=Decimal(1))
    with pytest.raises(Exception, match="stream"):
        shop.deliver()


def test_an_event_that_names_two_instances_starts_the_one_and_is_handled_by_the_other(shops):
    shop = shops(Family)
    for order, parent in (("p", "nobody"), ("c", "p")):
        shop.send(order, Order.place, sku=parent, quantity=1, amount=Decimal(1))
    shop.deliver()
    told = {one.instance: (one.status, shop.dispatcher.load(Family, one.instance).children)
            for one in shop.processes.instances()}  # fmt: skip
    assert told == {"p": ("running", 1), "c": ("running", 0), "nobody": ("unstarted", 0)}


@pytest.mark.both_databases
def test_two_workers_send_each_command_once(shop):
    shop.stock(100)
    orders = [f"o{number}" for number in range(20)]
    shop.place(*orders)
    shop.deliver()
    workers = [shop.worker(batch=3) for _ in range(2)]
    turns = itertools.cycle(workers)
    wait_until(lambda: next(turns).run_once() and sum(worker.report.commands for worker in workers) >= 20)
    for worker in workers * 2:
        worker.run_once()
    assert sum(worker.report.commands for worker in workers) == 20
    assert shop.types("item-tea").count("item.reserved") == 20
