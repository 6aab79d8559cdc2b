"""Processes over random histories: whatever comes when, and however it is cut into batches, stock and orders agree."""

from __future__ import annotations

import collections
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import SqlEventStore
from tests.conformance.followed_views import EXAMPLES
from tests.conformance.process_shop import Shop

ORDERS = ("o1", "o2", "o3")
STOCK = 2
ACTIONS = st.lists(
    st.tuples(st.just("place"), st.sampled_from(ORDERS))
    | st.tuples(st.just("pay"), st.sampled_from(ORDERS))
    | st.tuples(st.just("pass"), st.integers(1, 40))
    | st.tuples(st.just("deliver"), st.none())
    | st.tuples(st.just("work"), st.integers(1, 3)),
    max_size=25,
)


@settings(max_examples=20 + EXAMPLES, deadline=None)
@given(ACTIONS)
def test_every_order_ends_once_and_the_stock_is_what_the_orders_hold(actions):
    with TemporaryDirectory() as folder, SqlEventStore(f"sqlite:///{Path(folder)}/shop.db") as store:
        store.create_tables()
        shop, placed, paid = Shop(store), set(), set()
        shop.stock(STOCK)
        for name, what in actions:
            play(shop, name, what, placed, paid)
        for _ in range(3):  # everything that has come is handled, and every timer is over
            shop.deliver()
            shop.worker().drain()
            shop.pass_time(hours=1)
        assert complaints(shop, placed, paid) == []


def play(shop, name, what, placed, paid):
    if name == "place" and what not in placed:
        placed.add(what)
        shop.place(what)
    elif name == "pay" and what not in paid:
        paid.add(what)
        shop.pay(what)
    elif name == "pass":
        shop.pass_time(minutes=what)
    elif name == "deliver":
        shop.deliver()
    elif name == "work":
        shop.worker(batch=what).run_once()


def complaints(shop, placed, paid):
    found, held = [], 0
    reservations = collections.Counter(
        (event.type, event.data["order_id"]) for event in shop.store.read_stream("item-tea") if "order_id" in event.data
    )
    for order in placed:
        types, status = collections.Counter(shop.types(f"order-{order}")), shop.status(order)
        reserved = reservations["item.reserved", order] - reservations["item.released", order]
        held += reserved
        shipped, cancelled = types["order.shipped"], types["order.cancelled"]
        if (shipped, cancelled) not in ((1, 0), (0, 1)) or status not in ("done", "compensated"):
            found.append(f"{order}: {dict(types)}, {status}")
        if shipped and (order not in paid or not reserved):
            found.append(f"{order} was shipped unpaid, or without stock")
        if cancelled and reserved:
            found.append(f"{order} was cancelled and holds {reserved}")
        refunds = shop.types(f"payment-p-{order}").count("payment.refunded")
        if refunds != (1 if cancelled and order in paid else 0):
            found.append(f"{order}: {refunds} refunds")
    if held > STOCK or shop.rows("factfold_scheduled"):
        found.append(f"{held} held, {shop.rows('factfold_scheduled')} scheduled")
    return found
