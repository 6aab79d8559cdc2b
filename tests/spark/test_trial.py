"""The test kit: a view that looks further than its references reach is found, with the key and both rows."""

from __future__ import annotations

import datetime as dt
import enum
import random
import uuid
from decimal import Decimal
from typing import Annotated

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from eventstore import Aggregate, Personal, event
from projections import ProjectionGroup, Table, on, sql_view, view
from projections.errors import InvalidDefinition
from projections.stores.behind_rows import rows_behind
from projections.testing.trial import ViewsDiffer, ViewTrial
from tests.captured import captured
from tests.integration.payments import CUSTOMERS, Payment, received, risk_view
from tests.integration.tickets import DECLARED, Ticket

orders, customers = captured("orders", "customer_id", "region_id"), captured("customers", "region_id", "name")
tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)


@view(key="id")
def bought(orders, customers):
    named = customers.select(F.col("id").alias("customer_id"), "name")
    return orders.join(named, "customer_id", "left").select("id", "name")


@view(key="id")
def neighbours(orders, customers):
    """Joined by another column than the reference has."""
    return orders.join(customers.select("region_id", "name"), "region_id", "left").select("id", "name")


@view(key="ticket_id")
def open_tickets(tickets):
    return tickets.select("ticket_id", "status")


@pytest.mark.faults
def test_a_view_along_its_references_stands_the_trial(spark, tmp_path):
    with ViewTrial(spark, ProjectionGroup("trial", [bought, open_tickets]), tmp_path) as trial:
        trial.put(orders, {"id": 1, "customer_id": 7, "region_id": 2})
        trial.put(customers, {"id": 7, "region_id": 2, "name": "Ann"})
        trial.record("ticket-1", Ticket.Opened(customer_id=7, hours=Decimal(1)))
        trial.shake()
        assert trial.rows("bought") == [{"id": 1, "name": "Ann"}]
        assert [row["ticket_id"] for row in trial.rows("open_tickets")] == ["1"]
        with pytest.raises(InvalidDefinition, match="no table or stream of group 'trial' reads stream 'guest-1'"):
            trial.record("guest-1", Ticket.Opened(customer_id=7, hours=Decimal(1)))


def test_a_view_that_looks_further_is_refused_before_any_trial(spark, tmp_path):
    with (
        pytest.raises(InvalidDefinition, match="rows that its key, id, may not tell apart"),
        ViewTrial(spark, ProjectionGroup("trial", [neighbours]), tmp_path),
    ):
        pass


@view(key="id")
def lucky(orders):
    """By a Python function that does not keep its word, which no plan shows."""
    draw = F.udf(lambda id: random.getrandbits(60), "bigint")
    return orders.select("id", draw("id").alias("luck"))


def test_a_python_function_that_draws_lots_is_found_with_the_key_and_both_rows(spark, tmp_path):
    with ViewTrial(spark, ProjectionGroup("trial", [lucky]), tmp_path) as trial:
        trial.put(orders, {"id": 1, "customer_id": 7, "region_id": 2})
        with pytest.raises(ViewsDiffer, match=r"view lucky, key \{'id': 1\}: live .*'luck': \d+.*, recomputed .*\d+"):
            trial.check()


class Colour(enum.Enum):
    RED = "red"


things = Table.from_changelog(
    sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("price", sa.Numeric(8, 2)),
        sa.Column("day", sa.Date),
        sa.Column("at", sa.DateTime(timezone=True)),
        sa.Column("local", sa.DateTime()),
        sa.Column("raw", sa.LargeBinary),
        sa.Column("colour", sa.Enum(Colour)),
        sa.Column("clock", sa.Time),
    ),
    topic="shop.public.things",
)
EAST = dt.timezone(dt.timedelta(hours=2))


RISK = risk_view(
    received("payment"), Table.versions_of(CUSTOMERS, topic="shop.public.customers", name="versions"), how="left"
)


def test_a_view_over_versions_shows_what_was_valid_then(view_trial):
    trial = view_trial(group := ProjectionGroup("risk", [RISK]))
    versions = RISK.tables["customer_versions"]
    monday, tuesday, friday = (dt.datetime(2026, 3, day, tzinfo=dt.UTC) for day in (2, 3, 6))
    trial.put(versions, {"id": 7, "credit_score": 300}, committed=monday)
    trial.record("payment-p1", Payment.Received(customer_id=7, amount=Decimal(10), paid_at=tuesday))
    trial.check()
    trial.put(versions, {"id": 7, "credit_score": 900}, committed=friday)
    trial.record("payment-p2", Payment.Received(customer_id=7, amount=Decimal(20), paid_at=friday))
    trial.check()
    assert [(row["payment_id"], row["credit_score"]) for row in trial.rows("payment_risk")] == [
        ("p1", 300),
        ("p2", 900),
    ]
    for payment, score in (("p1", 300), ("p2", 900)):  # the version that the join chose is behind the row
        *_, version = rows_behind(trial._store, group, 1, "payment_risk", {"payment_id": payment})
        assert version.values["credit_score"] == score
    # A version that comes late was valid at the first payment.
    trial.put(versions, {"id": 7, "credit_score": 500}, committed=tuesday)
    trial.check()
    assert {row["payment_id"]: row["credit_score"] for row in trial.rows("payment_risk")} == {"p1": 500, "p2": 500}


@pytest.fixture
def view_spark(spark):
    """The session of our own tests, in place of the plug-in's."""
    return spark


def test_the_fixture_of_the_plug_in_takes_values_of_every_type(view_trial):
    trial = view_trial(
        ProjectionGroup("typed", [sql_view("all_things", "SELECT * FROM things", tables={"things": things})])
    )
    row = {"id": uuid.UUID(int=7), "price": Decimal("5.00"), "day": dt.date(2026, 1, 2), "raw": b"\x00a",
           "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6, EAST), "local": dt.datetime(2026, 1, 2, 3),
           "colour": Colour.RED, "clock": dt.time(3, 4)}  # fmt: skip
    trial.put(things, row)
    trial.check()
    (found,) = trial.rows("all_things")
    utc = {"at": row["at"], "local": row["local"].replace(tzinfo=dt.UTC)}
    text = {"id": str(row["id"]), "price": "5.00", "colour": "RED", "clock": "03:04:00.000000"}
    assert found == row | utc | text
    with pytest.raises(InvalidDefinition, match="a object is no value of a captured column"):
        trial.put(things, {"id": object()})


class Guest(Aggregate):
    @event
    class Booked:
        name: Annotated[str, Personal(erased="(erased)")]
        nights: int


def test_a_view_of_personal_columns_needs_no_keys_on_trial(spark, tmp_path):
    columns = {"name": on(Guest.Booked).take("name"), "nights": on(Guest.Booked).take("nights")}
    guests = Table.from_events(Guest, key="guest_id", columns=columns)
    stays = sql_view("stays", "SELECT guest_id, upper(name) AS name, nights FROM guests", tables={"guests": guests})
    with ViewTrial(spark, ProjectionGroup("hotel", [stays]), tmp_path) as trial:
        trial.record("guest-1", Guest.Booked(name="Ann", nights=3))
        trial.check()
        assert trial.rows("stays") == [{"guest_id": "1", "name": "ANN", "nights": 3}]
