"""Tables of several aggregates, and tables with a condition."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

import pytest

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import Environment, ProjectionGroup, Table, field, on, open_runner, rebuild, verify, view
from projections.spark.session import small_batch_session
from projections.testing.memory_log import MemoryLog
from projections.testing.trial import ViewTrial
from tests.conformance.filtered_views import GROUP, SQL, WORLD
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.view_oracle import in_order, stored
from tests.integration.tickets import DECLARED, Ticket


class Purchase(Aggregate):
    amount: int | None = None

    @event
    class Made:
        amount: int

    def on_made(self, e: Made) -> None:
        self.amount = e.amount


class Settlement(Aggregate):
    paid: int = 0

    @event
    class Settled:
        by: str
        amount: int

    def on_settled(self, e: Settled) -> None:
        self.paid += e.amount


class Parcel(Aggregate):
    @event
    class Sent:
        to: str


purchases = Table.from_events(
    Purchase,
    Settlement,
    Parcel,
    name="purchases",
    key="id",
    columns={
        "amount": on(Purchase.Made).take("amount"),
        "settled_by": on(Settlement.Settled).take("by"),
        "settled": [on(Settlement.Settled).take("amount")],
        "sent_to": on(Parcel.Sent).take("to"),
    },
)
folded = Table.from_events(Purchase, Settlement, name="folded", key="id")


@view(by="settled_by")
def payers(purchases):
    return purchases.groupBy("settled_by").count().withColumnRenamed("count", "n")


PURCHASES = ProjectionGroup("purchases", [purchases, folded, payers])
EVENTS = {
    Purchase: lambda number: Purchase.Made(amount=number),
    Settlement: lambda number: Settlement.Settled(by=f"payer {number % 3}", amount=number),
    Parcel: lambda number: Parcel.Sent(to=f"town {number}"),
}


class History:
    """Writes records of a few ids, and knows what every view must show."""

    def __init__(self, log, seed):
        self._log, self._chance = log, random.Random(seed)
        self._versions = Counter()
        self._events = {}

    def go_on(self):
        """An event of a stream, or the deletion of one: a stream that was deleted stays so."""
        aggregate, id = self._chance.choice(list(EVENTS)), str(self._chance.randrange(40))
        stream, known = (aggregate, id), self._events.get((aggregate, id))
        if known is None and stream in self._events:
            return
        if known and self._chance.random() < 0.3:
            self._events[stream] = None
            for version in range(self._versions[stream] + 1):
                self._write(stream, version, None)
            return
        happened = EVENTS[aggregate](self._chance.randrange(100))
        self._events.setdefault(stream, []).append(happened)
        self._write(stream, self._versions[stream], event_type_of(happened).encode(happened))
        self._versions[stream] += 1

    def _write(self, stream, version, value):
        aggregate, id = stream
        self._log.append(aggregate.category, f"{aggregate.category}-{id}@{version}".encode(), value)

    def expected(self):
        """The rows of every view."""
        there = {stream: events for stream, events in self._events.items() if events}
        rows = [self._row(id, there) for id in sorted({id for _, id in there})]
        plain = [(r[0], r[1], sum(e.amount for e in there[Settlement, r[0]]) if (Settlement, r[0]) in there else None)
                 for r in rows if (Purchase, r[0]) in there or (Settlement, r[0]) in there]  # fmt: skip
        by = Counter(row[2] for row in rows)
        return {"purchases": in_order(rows), "folded": in_order(plain), "payers": in_order(by.items())}

    @staticmethod
    def _row(id, there):
        made, settled, sent = (there.get((aggregate, id), [None])[-1] for aggregate in EVENTS)
        return (id, made and made.amount, settled and settled.by, settled and settled.amount, sent and sent.to)


def check_history(store, spark, *, seed):
    schemas = {k.schema_id: k.registered for aggregate in EVENTS for k in aggregate.event_types.values()}
    environment = Environment(spark, small_batch_session(spark), store, MemoryLog(schemas))
    history = History(environment.log, seed)
    for _ in range(20):
        history.go_on()
    rebuild(environment, PURCHASES)
    assert stored(store, PURCHASES) == history.expected(), "after the rebuild"
    with open_runner(environment, PURCHASES) as runner:
        for batch, events in enumerate([1, 3, 60]):
            for _ in range(events):
                history.go_on()
            runner.catch_up()
            assert stored(store, PURCHASES) == history.expected(), f"after batch {batch}"
    assert all(verdict.equal for verdict in verify(environment, PURCHASES).values())


@pytest.mark.postgres_in_faults
def test_a_row_has_the_columns_of_every_aggregate_that_has_its_id(store, spark):
    check_history(store, spark, seed=1)


# ---- tables with a condition share the state of the whole table, and Spark judges a folded row as a whole


def test_a_filtered_table_shares_the_state_of_the_whole_one(store, spark):
    layout = RelationalBatches(store, MemoryLog(), GROUP, SQL, WORLD.columns(spark))._layout
    assert sorted(layout.tables) == ["customers", "orders", "regions"]
    assert layout.views["all_of_them"].root.state is layout.views["summed"].root.state


tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
open_tickets = tickets.where((field("status") == "open") & (field("hours") >= Decimal("1.5")))


@view(key="ticket_id")
def waiting(open_tickets):
    return open_tickets.select("ticket_id", "customer_id")


def judged(spark, folder):
    with ViewTrial(spark, ProjectionGroup("folded", [waiting]), folder) as trial:
        trial.record("ticket-1", Ticket.Opened(customer_id=7, hours=Decimal("1.5")))
        trial.record("ticket-2", Ticket.Opened(customer_id=8, hours=Decimal("1.4999")))
        trial.check()
        assert trial.rows("waiting") == [{"ticket_id": "1", "customer_id": 7}]
        trial.record("ticket-1", Ticket.Moved(customer_id=9))  # sets neither of the condition's columns
        trial.check()
        assert trial.rows("waiting") == [{"ticket_id": "1", "customer_id": 9}]
        trial.record("ticket-1", Ticket.Closed())
        trial.check()
        assert trial.rows("waiting") == []


def test_a_folded_row_is_judged_as_a_whole(spark, tmp_path):
    judged(spark, tmp_path)
