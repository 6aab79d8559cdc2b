"""process.*: steps of a process that each send a command, against a bare handler; and timers that are due.

Both read the same events of one PostgreSQL store, with the inbox, and send one command for each to an aggregate of its
own. The bare handler sends it in the transaction of its batch. The process stores a step and the command's row, and its
worker sends the command and deletes the row: two transactions, and an event more. Best of alternating runs.
``process.timers`` is how many overdue timers fire a second, each a step of its own instance; the other figure is the
required rate. What it does not show: aggregates with long streams, and workers side by side.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated

import sqlalchemy as sa
import typer

from benchmarks.machine import Claim, at_least, write
from eventstore import (
    NO_STREAM,
    Aggregate,
    Dispatcher,
    RecordedEvent,
    SqlEventStore,
    Subscriber,
    command,
    event,
    subscription,
)
from eventstore.backends.sql.source import StoreSource
from eventstore.processes import Process, starts, times_out
from eventstore.processes.running import open_process
from eventstore.processes.worker import ProcessWorker
from eventstore.store import StreamAppend
from factfold.stack import LocalStack
from sample_app.story import Story

TARGET = 0.4
TIMERS_A_SECOND = 2_000
_BATCH = 500
_DAY = timedelta(days=1)


class Parcel(Aggregate):
    """A parcel of an order."""

    @event
    class Packed:
        """It is packed."""

        order_id: str

    @command
    def pack(self, order_id: str) -> None:
        """Pack it."""
        self.emit(self.Packed(order_id=order_id))


class Order(Aggregate):
    """An order."""

    @event
    class Placed:
        """It was placed."""

        sku: str


class Packing(Process, sends=[Parcel]):
    """Sends one command for each order."""

    @starts(Order.Placed)
    def placed(self) -> None:
        """Pack it."""
        self.send(self.id, Parcel.pack, order_id=self.id)


class Waiting(Process):
    """Waits a day for each order."""

    days: int = 0

    @starts(Order.Placed)
    def placed(self) -> None:
        """Wait."""
        self.timeout("day", after=_DAY)

    @times_out("day")
    def over(self) -> None:
        """Count it."""
        self.days += 1


def main(
    orders: Annotated[int, typer.Option(help="How many orders a run.")] = 3_000,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
    stack: Annotated[str | None, typer.Option(help="Use the servers of this stack.")] = None,
) -> None:
    """Measure and write build/bench/processes.json."""
    story = Story("processes")
    with LocalStack(stack or "bench", ephemeral=stack is None) as servers:
        url = servers.info.postgres.url()
        rounds = [_round(url, orders) for _ in range(runs)]
    best = {name: max(rates[name] for rates in rounds) for name in rounds[0]}
    claims = _claims(best, n=orders, runs=runs)
    path = write("processes", claims, rates={name: round(rate, 1) for name, rate in best.items()})
    story.say(", ".join(f"{claim.id} {claim.ours:,.0f}/s, {claim.ratio}" for claim in claims) + f": {path}")


def _claims(best: dict[str, float], *, n: int, runs: int) -> list[Claim]:
    steps = at_least(
        "process.steps", ours=best["steps"], other=best["bare"], other_name="bare handler", unit="/s", n=n, runs=runs,
        target=TARGET,
    )  # fmt: skip
    timers = at_least(
        "process.timers", ours=best["timers"], other=TIMERS_A_SECOND, other_name="wanted", unit="/s", n=n, runs=runs,
        target=1.0,
    )  # fmt: skip
    return [steps, timers]


def _round(url: str, orders: int) -> dict[str, float]:
    return {
        "steps": _on_a_store(url, orders, _steps),
        "bare": _on_a_store(url, orders, _bare),
        "timers": _on_a_store(url, orders, _timers),
    }


def _on_a_store(url: str, orders: int, measure: Callable[[SqlEventStore, int], float]) -> float:
    """What a measurement finds on an empty store with so many orders."""
    engine = sa.create_engine(url)
    with SqlEventStore(engine, schema=f"bench_{uuid.uuid4().hex[:8]}") as store:
        store.create_tables()
        store.register(Order, Parcel)
        placed = [StreamAppend(f"order-{n}", [Order.Placed(sku="tea")], NO_STREAM) for n in range(orders)]
        for first in range(0, orders, _BATCH):
            store.append_batch(placed[first : first + _BATCH])
        try:
            return measure(store, orders)
        finally:
            engine.dispose()


def _steps(store: SqlEventStore, orders: int) -> float:
    worker = ProcessWorker(store, [Packing])
    with open_process(store, Packing, batch=_BATCH) as subscriber:
        return _rate(orders, lambda: (_deliver(subscriber, orders), worker.drain()))


def _bare(store: SqlEventStore, orders: int) -> float:
    dispatcher = Dispatcher(store)

    @subscription("order", group="bare", batch=_BATCH)
    def pack(event: Order.Placed, recorded: RecordedEvent, tx: sa.Connection) -> None:
        order_id = recorded.stream.partition("-")[2]
        dispatcher.within(tx).with_metadata(recorded.caused()).send(order_id, Parcel.pack, order_id=order_id)

    with Subscriber(pack, StoreSource(store, pack, category="order"), engine=store.engine) as subscriber:
        return _rate(orders, lambda: _deliver(subscriber, orders))


def _timers(store: SqlEventStore, orders: int) -> float:
    worker = ProcessWorker(store, [Waiting], clock=lambda: datetime.now(UTC) + 2 * _DAY, batch=_BATCH)
    with open_process(store, Waiting, batch=_BATCH) as subscriber:
        _deliver(subscriber, orders)
    return _rate(orders, worker.drain)


def _deliver(subscriber: Subscriber, orders: int) -> None:
    while subscriber.report.handled < orders:
        subscriber.run_once()


def _rate(count: int, work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return count / (time.perf_counter() - begun)


if __name__ == "__main__":
    typer.run(main)
