"""Several categories of a store read at once, in its own order, each after a place of its own."""

from __future__ import annotations

import pytest

from eventstore import ANY, Aggregate, event

pytestmark = pytest.mark.both_databases


class Payment(Aggregate):
    @event
    class Received:
        amount: int


class Refund(Aggregate):
    @event
    class Paid:
        amount: int


class Other(Aggregate):
    @event
    class Happened:
        amount: int


def test_categories_are_read_in_store_order_each_after_its_own_place(opened):
    store = opened()
    kinds = [("payment", Payment.Received), ("refund", Refund.Paid), ("other", Other.Happened)]
    for amount in range(9):
        category, kind = kinds[amount % 3]
        store.append(f"{category}-{amount // 6}", [kind(amount=amount)], expected=ANY)
    every = list(store.read_all())
    assert _amounts(store.read_categories({"payment": None, "refund": None}, limit=100)) == [0, 1, 3, 4, 6, 7]
    assert _amounts(store.read_categories({"payment": None, "refund": None}, limit=3)) == [0, 1, 3]
    after = {"payment": every[3].position, "refund": None}
    assert _amounts(store.read_categories(after, limit=100)) == [1, 4, 6, 7]
    assert _amounts(store.read_categories({"refund": every[4].position}, limit=100)) == [7]


def _amounts(events):
    return [event.data["amount"] for event in events]
