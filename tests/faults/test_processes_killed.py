"""Runners of processes are killed with -9 while orders are placed, paid and given up: each command and timer once.

FACTFOLD_KILLS sets how often (1 with 500 orders in make test, 20,000 where it is 20 or more); two runners work side by
side. What happened is told by the streams of the aggregates, of which the process is the only writer: every order is
reserved once, and either shipped, or released and cancelled.
"""

from __future__ import annotations

import collections
import os
import random
import time
from decimal import Decimal

import pytest

from eventstore import ANY, SqlEventStore
from eventstore.processes.administration import Processes
from eventstore.store import StreamAppend
from tests.faults.command_process import CommandProcess
from tests.faults.order_processes import Delivery
from tests.unit.eventstore.fulfilment import Item, Order, Payment
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "1"))
ORDERS = 500 if KILLS == 1 else 20_000 if KILLS >= 20 else 2_000
SEED = int(os.environ.get("FACTFOLD_SEED", "7"))
RUNNERS, ARTICLES = 2, ORDERS // 10


@pytest.fixture(params=["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.faults)])
def store(request, tmp_path):
    url = f"sqlite:///{tmp_path}/shop.db" if request.param == "SQLite" else request.getfixturevalue("database")()
    with SqlEventStore(url) as opened:
        opened.create_tables()
        yield opened


@pytest.fixture
def start(store, tmp_path):
    """A function that starts a runner; what still runs at the end stops in peace."""
    started = []

    def one():
        environment = {"FACTFOLD_STORE_URL": store.engine.url.render_as_string(hide_password=False)}
        command = ["processes", "run", "tests.faults.order_processes:Delivery", "--json"]
        started.append(CommandProcess(command, environment, tmp_path / f"runner-{len(started)}.log"))
        return started[-1]

    yield one
    for process in started:
        process.stop()


def test_every_command_and_every_timer_once_whoever_is_killed(store, start):
    chance = random.Random(SEED)
    place(store)
    runners = [start() for _ in range(RUNNERS)]
    pay(store)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.5, 2.0))  # the moment of the kill, and no wait for anything
        victim = chance.randrange(RUNNERS)
        runners[victim].kill()
        runners[victim] = start()
    wait_for_all(store)
    assert complaints(store) == []


def place(store: SqlEventStore) -> None:
    """Orders of some articles, whose payment has a second or an hour."""
    stock = [StreamAppend(f"item-{sku}", [Item.Received(quantity=ORDERS)], ANY) for sku in range(ARTICLES)]
    store.append_batch(stock)
    orders = [
        StreamAppend(f"order-{n}", [Order.Placed(sku=str(n % ARTICLES), quantity=1, amount=Decimal(seconds(n)))], ANY)
        for n in range(ORDERS)
    ]
    for first in range(0, ORDERS, 500):
        store.append_batch(orders[first : first + 500])


def pay(store: SqlEventStore) -> None:
    paid = [
        StreamAppend(f"payment-{n}", [Payment.Received(order_id=str(n), amount=Decimal(1))], ANY)
        for n in range(ORDERS)
        if seconds(n) > 1
    ]
    for first in range(0, len(paid), 500):
        store.append_batch(paid[first : first + 500])


def seconds(order: int) -> int:
    return 3600 if order % 2 else 1


def wait_for_all(store: SqlEventStore, *, seconds: float = 30 + ORDERS / 20) -> None:
    processes = Processes(store)

    def found() -> dict[str, int]:
        return {one.status: one.instances for one in processes.stats()}

    def all_ended() -> bool:
        return found() == {"done": ORDERS // 2, "compensated": ORDERS // 2} and not waiting(store)

    def what() -> str:
        return f"the end of all orders ({found()}, {waiting(store)} scheduled, seed {SEED})"

    wait_until(all_ended, within=seconds, what=what, pause=0.2)


def waiting(store: SqlEventStore) -> int:
    with store.engine.connect() as connection:
        return int(connection.exec_driver_sql("select count(*) from factfold_scheduled").scalar_one())


def complaints(store: SqlEventStore) -> list[str]:
    """What did not happen, or happened twice, by the streams."""
    types = collections.defaultdict(collections.Counter)
    for event in store.read_all():
        order = event.data.get("order_id") if event.stream.startswith("item-") else event.stream.partition("-")[2]
        if event.type != "process.stepped":
            types[order][event.type] += 1
    found = []
    for number in range(ORDERS):
        ended = {"order.shipped": 1} if seconds(number) > 1 else {"item.released": 1, "order.cancelled": 1}
        paid = {"payment.received": 1} if seconds(number) > 1 else {}
        expected = {"order.placed": 1, "item.reserved": 1, **ended, **paid}
        if dict(types[str(number)]) != expected:
            found.append(f"order {number}: {dict(types[str(number)])}")
    return found + steps_of(store)


def steps_of(store: SqlEventStore) -> list[str]:
    """Instances whose timer or reply was handled more than once, by their state."""
    last = {}
    for event in store.read_all(category="delivery"):
        last[event.stream] = event
    bad = []
    for stream, event in last.items():
        process = Delivery.fold(Delivery(stream.partition("-")[2]), [event])
        fired = 1 if seconds(int(process.id)) == 1 else 0
        if (process.fired, process.answers) != (fired, 1):
            bad.append(f"{stream}: timer {process.fired} times, {process.answers} answers")
    return bad
