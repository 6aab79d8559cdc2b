"""Processes in trouble: what fails is tried again, set aside and named, and holds up nobody; on both databases."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
import sqlalchemy as sa

from eventstore import Command, Dispatcher, Result, Send
from eventstore.errors import InvalidEventData, SubscriptionError
from eventstore.processes.errors import ProcessError, StepFailed
from eventstore.processes.running import open_process
from eventstore.scheduling import Schedule
from tests.conformance.process_shop import NOON, Broken, Picky, Reminder
from tests.errors import raises
from tests.unit.eventstore.fulfilment import Fulfilment, Order

pytestmark = pytest.mark.postgres_in_faults


@pytest.mark.both_databases
def test_a_handler_that_raises_leaves_nothing_behind(shops):
    shop = shops(Broken)
    shop.place("o1")
    with pytest.raises(StepFailed, match="broken 'o1' failed: ZeroDivisionError"):
        shop.deliver()
    assert shop.types("broken-o1") == []
    assert shop.rows("factfold_scheduled") == 0
    assert shop.rows("factfold_processes") == 0


def reminded(shop, **orders):
    """Place orders and let their timers be due, as often as a worker tries one."""
    for order, sku in orders.items():
        shop.send(order, Order.place, sku=sku, quantity=1, amount=Decimal(1))
    shop.deliver()
    worker = shop.worker()
    for _ in range(20):
        shop.pass_time(minutes=30)
        worker.run_once()
    return worker


@pytest.mark.both_databases
def test_a_timer_that_fails_is_tried_again_then_set_aside_and_can_be_retried_and_the_others_go_on(shops):
    """As its handler raises, as no stream takes the step, and as no handler of it is there."""
    shop = shops(Reminder)
    shop.send("o4", Order.place, sku="10", quantity=1, amount=Decimal(1))
    shop.deliver()
    shop.insert_timer("o4", "renamed since")
    worker = reminded(shop, o1="10", o2="raise", o3="large", o5="10")
    assert [shop.steps(f"o{number}")[-1][0] for number in (1, 2, 3, 4, 5)] == [
        "remind", "order.placed", "order.placed", "remind", "remind",
    ]  # fmt: skip
    stuck = {one.instance: one for one in shop.processes.instances(stuck=timedelta(days=9))}
    assert stuck.keys() == {"o2", "o3", "o4"}
    assert "remind was set aside: ZeroDivisionError" in stuck["o2"].problem
    assert stuck["o2"].waits_for == "timer remind, which was set aside"
    assert "remind was set aside" in stuck["o3"].problem
    assert "has no handler for the timer 'renamed since'" in stuck["o4"].problem
    Reminder.broken = False
    try:
        shop.processes.retry("reminder", "o2")
        worker.drain()
    finally:
        Reminder.broken = True
    assert shop.steps("o2")[-1] == ("remind", "running")
    assert len(shop.processes.instances(stuck=timedelta(days=9))) == 2


@pytest.mark.both_databases
def test_an_instance_whose_handler_raises_becomes_a_dead_letter_and_the_others_go_on(shops):
    shop = shops(Picky)
    for order, sku in (("o1", "tea"), ("o2", "raise"), ("o3", "tea")):
        shop.send(order, Order.place, sku=sku, quantity=1, amount=Decimal(1))
    with open_process(shop.store, Picky, attempts=2, backoff=0.0) as subscriber:
        while subscriber.run_once(timeout=0).records:
            pass
        assert (subscriber.report.handled, subscriber.report.dead) == (2, 1)
    assert [one.instance for one in shop.processes.instances()] == ["o1", "o3"]
    assert shop.rows("factfold_dead_letters") == 1


@pytest.mark.both_databases
def test_a_second_start_is_not_tried_again_and_says_what_to_do(shop):
    shop.place("o1", "o1")
    with open_process(shop.store, Fulfilment, attempts=5) as subscriber:
        while subscriber.run_once(timeout=0).records:
            pass
        report = subscriber.report
    assert (report.handled, report.dead, report.retried) == (1, 1, 0)
    with shop.store.engine.connect() as connection:
        (message,) = connection.execute(sa.text("SELECT message FROM factfold_dead_letters")).scalars()
    assert "would start fulfilment-o1, which is there already" in message


@pytest.mark.both_databases
def test_a_compensation_waits_for_a_step_that_is_being_sent_and_then_undoes_it(shop):
    shop.begin(stock=5)
    shop.deliver()
    sending, go_on = threading.Event(), threading.Event()

    def slow(message: Command, send: Send) -> Result:
        sending.set()
        assert go_on.wait(20)
        return send(message)

    slow_worker = shop.worker(dispatcher=Dispatcher(shop.store, middleware=[slow]))
    with ThreadPoolExecutor(2) as threads:
        step = threads.submit(slow_worker.run_once)
        assert sending.wait(20)
        giving_up = threads.submit(lambda: shop.processes.cancel("fulfilment", "o1"))
        wait([giving_up], 0.5)
        assert not giving_up.done()
        go_on.set()
        step.result()
        giving_up.result()
    shop.worker().drain()
    assert shop.types("item-tea") == ["item.received", "item.reserved", "item.released"]
    assert shop.status("o1") == "compensated"


def test_a_handler_that_hangs_is_cut_off_named_and_holds_up_nobody(shops):
    shop = shops(Reminder)
    Reminder.hangs.clear()
    for order, sku in (("o1", "10"), ("o2", "hang")):
        shop.send(order, Order.place, sku=sku, quantity=1, amount=Decimal(1))
    shop.deliver()
    shop.pass_time(hours=1)
    worker = shop.worker(timeout=0.5)
    try:
        with raises(SubscriptionError, code="handler-hung", match="a handler of reminder-o2 did not return within"):
            worker.run(stop=threading.Event())
    finally:
        Reminder.hangs.set()
    shop.worker().drain()
    assert shop.steps("o1")[-1] == ("remind", "running")
    (again,) = shop.processes.show("reminder", "o2").scheduled
    assert (again.attempts, again.due > shop.now) == (1, True)


def test_a_scheduled_command_is_sent_once_at_its_time_and_never_if_it_is_cancelled(shop):
    schedule = Schedule(shop.store, clock=lambda: shop.now)
    kept = schedule.after(timedelta(hours=1)).send("o1", Order.cancel, reason="late")
    gone = schedule.at(NOON + timedelta(hours=2)).send("o2", Order.cancel, reason="late")
    assert schedule.cancel(gone)
    assert not schedule.cancel(gone)
    assert shop.worker(commands=[Order]).drain().commands == 0
    shop.pass_time(hours=5)
    assert shop.worker(commands=[Order]).drain().commands == 1
    assert not schedule.cancel(kept)
    assert (shop.types("order-o1"), shop.types("order-o2")) == (["order.cancelled"], [])


@pytest.mark.both_databases
def test_a_schedule_belongs_to_the_transaction_of_its_caller(shop):
    with shop.store.engine.connect() as tx:
        Schedule(shop.store).within(tx).at(NOON).send("o1", Order.cancel, reason="late")
        tx.rollback()
    assert shop.rows("factfold_scheduled") == 0
    with pytest.raises(InvalidEventData, match="has no time zone"):
        Schedule(shop.store).at(datetime(2026, 1, 1))


def test_what_is_not_there_is_said_so(shop):
    with raises(ProcessError, code="process-unknown", match="there is no fulfilment 'o9'"):
        shop.processes.show("fulfilment", "o9")
    with raises(ProcessError, code="process-unknown", match="there is no fulfilment 'o9'"):
        shop.processes.retry("fulfilment", "o9")
    shop.place("o1")
    shop.deliver()
    shop.processes.cancel("fulfilment", "o1")
    with pytest.raises(ProcessError, match="has ended"):
        shop.processes.cancel("fulfilment", "o1")
    assert [(one.status, one.instances) for one in shop.processes.stats()] == [("compensated", 1)]
