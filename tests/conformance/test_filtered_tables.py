"""Tables with a condition: a row that stops meeting it leaves the views as a deleted one does, and comes back."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from projections import ProjectionGroup, Table, field, view
from projections.spark.views import frames
from projections.spark.views.view_functions import view_columns
from projections.testing.memory_log import ChangeWriter, MemoryLog
from projections.testing.trial import ViewTrial
from tests.conformance import relational_batches, view_oracle
from tests.conformance.followed_views import ROWS_STAY, in_a_file
from tests.conformance.join_views import captured, named
from tests.conformance.relational_batches import RelationalBatches
from tests.integration.tickets import DECLARED, Ticket
from tests.reference import accepted

pytestmark = pytest.mark.postgres_in_faults

every_order = captured("filtered_orders", "customer_id", "amount")
every_customer = captured("filtered_customers", "region_id", "full_name")
every_region = captured("filtered_regions", "region_name")
orders = every_order.where(field("amount") > 1).where(~(field("amount") == 3))
customers = every_customer.where(field("full_name").starts_with("full_name 1") | field("region_id").is_null())
regions = every_region.where(~field("region_name").is_null())

# By the names of the parameters for the slices, and with the conditions written out for DuckDB over every row.
SOME = {
    "orders": "(SELECT * FROM every_order WHERE amount > 1 AND amount <> 3)",
    "customers": "(SELECT * FROM every_customer WHERE starts_with(full_name, 'full_name 1') OR region_id IS NULL)",
    "regions": "(SELECT * FROM every_region WHERE region_name IS NOT NULL)",
    "every_order": "every_order",
}
EVERY = {"every_order": every_order, "every_customer": every_customer, "every_region": every_region}


@view(key="id")
def looked_up(orders, customers, regions):
    placed = customers.join(named(regions, region_id="id", region_name="region_name"), "region_id", "left")
    return orders.join(named(placed, customer_id="id", full_name="full_name", region_name="region_name"),
                       "customer_id", "left").select("id", "amount", "full_name", "region_name")  # fmt: skip


@view(key=("id", "customer"))
def beside(orders, customers):
    side = named(customers, customer="id", full_name="full_name")
    joined = orders.join(side, orders.customer_id == side.customer, "full")
    return joined.select("id", "customer", "amount", "full_name")


@view(by="customer_id")
def summed(orders):
    from pyspark.sql import functions as F

    return orders.groupBy("customer_id").agg(F.count("*").alias("orders"), F.max("amount").alias("most"))


@view(key="id")
def all_of_them(every_order):
    return every_order.select("id", "amount")


QUERIES = {
    "looked_up": "SELECT o.id, o.amount, c.full_name, r.region_name FROM {orders} o LEFT JOIN {customers} c"
    " ON o.customer_id = c.id LEFT JOIN {regions} r ON c.region_id = r.id",
    "beside": "SELECT o.id, c.id AS customer, o.amount, c.full_name FROM {orders} o FULL JOIN {customers} c"
    " ON o.customer_id = c.id",
    "summed": "SELECT customer_id, count(*) AS orders, max(amount) AS most FROM {orders} GROUP BY customer_id",
    "all_of_them": "SELECT id, amount FROM {every_order}",
}
ORACLE = {name: query.format(**SOME) for name, query in QUERIES.items()}
SQL = {name: query.format(**{role: role for role in SOME}) for name, query in QUERIES.items()}
GROUP = ProjectionGroup("filtered", [looked_up, beside, summed, all_of_them])


@pytest.fixture(scope="module")
def columns(spark):
    return view_columns(spark, GROUP)


def some_change(chance, changes):
    """Values that meet the conditions and values that do not; one in five changes comes late."""
    table = chance.choice(list(EVERY.values()))
    late = changes.position - chance.randrange(20) if chance.random() < 0.2 else None
    if chance.random() < 0.2:
        return changes.delete(table, {"id": chance.randrange(4)}, at=late)
    values = {c: f"{c} {chance.randrange(3)}" if c.endswith("name") else chance.randrange(5) for c in table.payload}
    empty = {c: None for c in values if chance.random() < 0.2}
    return changes.put(table, {"id": chance.randrange(4), **values, **empty}, at=late)


def through_a_history(log, catch_up, store, *, seed, batches):
    chance, changes = random.Random(seed), ChangeWriter(log)
    for batch in range(batches):
        for _ in range(chance.choice([1, 3, 12])):
            some_change(chance, changes)
        catch_up()
        view_oracle.assert_views_are_right(store, log, GROUP, ORACLE, EVERY, after=f"batch {batch} of seed {seed}")


def test_views_of_filtered_tables_are_right_through_random_histories(store, columns):
    log = MemoryLog()
    through_a_history(log, RelationalBatches(store, log, GROUP, SQL, columns).catch_up, store, seed=1, batches=20)


def test_a_filtered_table_shares_the_state_of_the_whole_one(store, columns):
    log = MemoryLog()
    layout = RelationalBatches(store, log, GROUP, SQL, columns)._layout
    assert sorted(layout.tables) == ["customers", "orders", "regions"]
    assert layout.views["all_of_them"].root.state is layout.views["summed"].root.state


MUTANTS = {
    "the condition is forgotten": (relational_batches, "accepted", lambda table, rows: rows),
    "rows that stop meeting it stay": ROWS_STAY,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_fault_shows(mutant, tmp_path, columns, monkeypatch):
    monkeypatch.setattr(*MUTANTS[mutant])
    with in_a_file(tmp_path) as store, pytest.raises(AssertionError, match="after"):
        test_views_of_filtered_tables_are_right_through_random_histories(store, columns)


tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
open_tickets = tickets.where((field("status") == "open") & (field("hours") >= Decimal("1.5")))


@view(key="ticket_id")
def waiting(open_tickets):
    return open_tickets.select("ticket_id", "customer_id")


def folded(spark, folder):
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
    folded(spark, tmp_path)


def test_a_condition_that_spark_forgets_shows(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "_accepted", lambda rows, table: rows)
    with pytest.raises(AssertionError):
        folded(spark, tmp_path)


def test_the_reference_judges_rows_as_three_valued_logic_does():
    rows = [{"region_id": region, "full_name": name} for region, name in ((1, "full_name 1"), (1, None), (None, None))]
    assert list(accepted(customers, rows)) == [rows[0], rows[2]]
