"""The sample shop: its services, and its books at the end of a day."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal

import pytest
import sqlalchemy as sa

from eventstore import ANY, Accepted, Dispatcher, Refusal, SqlEventStore
from sample_app.background import Background, wait_until
from sample_app.fraud import Remediation, cases
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import Payment
from sample_app.shipping.dispatch import parcels, shipping
from sample_app.shop import cancel_order

PLACED = Order.Placed(customer_id=1, sku="s", quantity=1, amount=Decimal("950"))
PAYMENT = Payment.Received(
    order_id="o1", customer_id=1, amount=Decimal("950"), paid_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
)


@pytest.fixture
def store(store_url):
    with SqlEventStore(store_url) as opened:
        opened.append("order-o1", [PLACED], expected=ANY)
        opened.append("payment-pay-o1", [PAYMENT], expected=ANY)
        yield opened


@pytest.fixture
def database(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/service.db")
    yield engine
    engine.dispose()


def received(store):
    (recorded,) = store.read_stream("payment-pay-o1")
    return recorded


def test_a_shipped_order_is_a_parcel(store, database):
    (shipped,) = Dispatcher(store).send("o1", Order.ship, carrier="Post").events
    with database.begin() as tx:
        shipping(database=database)(Order.Shipped(carrier="Post"), shipped, tx)
        assert [tuple(parcel) for parcel in tx.execute(sa.select(parcels))] == [("o1", "Post")]


def test_an_order_that_was_cancelled_before_its_payment_was_looked_at_is_a_case_without_anything_to_hold(
    store, database, views
):
    orders = Dispatcher(store)
    cancel_order(orders, "o1", reason="not paid in time")
    remediation = Remediation(orders, database=database, views=views)
    with database.begin() as tx:
        remediation.subscription()(PAYMENT, received(store), tx)
    assert remediation.outcomes() == {"nothing to hold": 1}


def test_an_order_that_is_cancelled_twice_is_cancelled_once(store):
    orders = Dispatcher(store)
    for reason in ("changed my mind", "not paid in time"):
        assert isinstance(cancel_order(orders, "o1", reason=reason), Accepted)
    assert [event.type for event in store.read_stream("order-o1")] == ["order.placed", "order.cancelled"]


def test_an_article_is_released_as_far_as_it_is_reserved(store):
    articles = Dispatcher(store)
    articles.send("s", InventoryItem.receive, title="Tea", quantity=5)
    articles.send("s", InventoryItem.reserve, order_id="o1", quantity=2)
    refused = articles.send("s", InventoryItem.release, order_id="o1", quantity=3)
    assert isinstance(refused, Refusal)
    assert refused.reason == "only 2 of Tea are reserved, 3 to be released"


@pytest.fixture
def views(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/views.db")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE payment_risk (payment_id TEXT, credit_score INTEGER)")
    yield engine
    engine.dispose()


def settled(remediation, database):
    def outcome():
        with database.connect() as connection:
            return connection.scalar(sa.select(cases.c.outcome))

    working = Background(remediation.settle, name="settling")
    with working.running():
        wait_until(lambda: working.require_health() or outcome() != "open", deadline=20, what="the case settled")
    return outcome()


@pytest.mark.parametrize(("score", "end"), [(700, "released"), (100, "cancelled"), (None, "cancelled")])
@pytest.mark.parametrize("died", [False, True], ids=["in one go", "died before its note"])
def test_a_case_is_settled_by_the_score_and_says_what_became_of_the_order(store, database, views, score, end, died):
    orders = Dispatcher(store)
    remediation = Remediation(orders, database=database, views=views)
    with database.begin() as tx:
        remediation.subscription()(PAYMENT, received(store), tx)
    with views.begin() as connection:
        connection.execute(sa.text("INSERT INTO payment_risk VALUES ('pay-o1', :score)"), {"score": score})
    if died:
        command = Order.release if end == "released" else Order.cancel
        orders.send("o1", command, reason="before the process died")
    assert settled(remediation, database) == end
    events = list(store.read_stream("order-o1"))
    assert [event.type for event in events] == ["order.placed", "order.held", f"order.{end}"]
    if not died:
        assert events[-1].metadata.correlation_id == str(received(store).id)


def test_settling_stops_when_told(store, database, views):
    stop = threading.Event()
    stop.set()
    Remediation(Dispatcher(store), database=database, views=views).settle(stop)
