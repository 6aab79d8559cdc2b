"""The shop's fulfilment in a store: its worker dies between any two statements, and what fails is mended by hand."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from eventstore import SqlEventStore
from eventstore.backends.sql.process_rows import ProcessRows
from sample_app.fulfilment import Fulfilment
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import Refund
from sample_app.shop import cancel_order, pay_order, place_order
from tests.conformance.process_shop import Shop

STATEMENTS = ("schedule", "save", "remove")  # the writes of a step, one behind the other


class Crash(BaseException):
    pass


class Crashing:
    """Dies once, behind the statement of a number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = -1
        for name in STATEMENTS:
            monkeypatch.setattr(ProcessRows, name, self._dying(getattr(ProcessRows, name)))

    @property
    def happened(self) -> bool:
        return self._left < 0

    def behind(self, number: int) -> None:
        self._left = number

    def surviving(self, work: Callable[[], object]) -> None:
        """Do it, and once more where it died."""
        try:
            work()
        except Crash:
            work()

    def _dying(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def statement(*args: Any, **kwargs: Any) -> Any:
            found = real(*args, **kwargs)
            self._left -= 1
            if self._left == -1:
                raise Crash
            return found

        return statement


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> Crashing:
    return Crashing(monkeypatch)


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[Iterator[Shop]]:
    """New shops, as many as are asked for."""
    opened: list[SqlEventStore] = []

    def new() -> Iterator[Shop]:
        with SqlEventStore(f"sqlite:///{tmp_path / 'empty.db'}") as empty:
            empty.create_tables()
        for number in itertools.count():
            path = shutil.copy(tmp_path / "empty.db", tmp_path / f"shop{number}.db")
            opened.append(SqlEventStore(f"sqlite:///{path}"))
            yield Shop(opened[-1], Fulfilment)

    yield new()
    for store in opened:
        store.close()


def pay(shop: Shop) -> None:
    pay_order(shop.dispatcher, "o1", customer_id=1, amount=Decimal(20))


def pay_suspiciously(shop: Shop) -> None:
    pay_order(shop.dispatcher, "o1", customer_id=1, amount=Decimal(900))
    shop.send("o1", Order.hold, reason="looked at")


def call_off(shop: Shop) -> None:
    cancel_order(shop.dispatcher, "o1", reason="changed my mind")


def trust(shop: Shop) -> None:
    shop.send("o1", Order.release, reason="score 700")


def wait(shop: Shop) -> None:
    shop.pass_time(minutes=31)


@pytest.mark.parametrize(
    ("stock", "amount", "what_happens", "status", "reserved", "refunds"),
    [
        pytest.param(5, 900, [pay_suspiciously, trust], "shipped", 2, 0, id="released", marks=pytest.mark.faults),
        pytest.param(5, 20, [wait, pay], "cancelled", 0, 1, id="paid too late"),
        pytest.param(
            5, 900, [pay_suspiciously, call_off], "cancelled", 0, 1, id="called off", marks=pytest.mark.faults
        ),
        pytest.param(1, 20, [pay], "cancelled", 0, 1, id="out of stock"),
    ],
)
def test_a_worker_that_dies_between_any_two_statements_changes_nothing_of_the_end(
    shops, crashing, stock, amount, what_happens, status, reserved, refunds
):
    expected: list[str] | None = None
    for number in itertools.count():
        shop = next(shops)
        shop.send("sku", InventoryItem.receive, title="Tea", quantity=stock)
        crashing.behind(number)
        place_order(shop.dispatcher, "o1", customer_id=1, sku="sku", quantity=2, amount=Decimal(amount))
        for happens in [lambda shop: None, *what_happens]:
            happens(shop)
            for _ in range(2):  # what a command led to is delivered too
                crashing.surviving(shop.deliver)
                crashing.surviving(lambda shop=shop: shop.worker().drain())
        assert shop.dispatcher.load(Order, "o1").status == status
        assert shop.dispatcher.load(InventoryItem, "sku").reserved == reserved
        assert len(list(shop.store.read_all(category=Refund.category))) == refunds
        assert not shop.rows("factfold_scheduled")
        assert shop.processes.instances() == []
        steps = [
            f"{event.data['cause']['name']} {event.data['status']}" for event in shop.store.read_stream("fulfilment-o1")
        ]
        assert steps == (expected or steps)
        expected = steps
        if not crashing.happened:
            assert number > 10
            return


def test_a_compensation_that_fails_is_listed_as_stuck_and_retried_by_hand(shops):
    shop, by_hand = next(shops), {"order_id": "o1", "quantity": 2}
    shop.send("sku", InventoryItem.receive, title="Tea", quantity=5)
    place_order(shop.dispatcher, "o1", customer_id=1, sku="sku", quantity=2, amount=Decimal(20))
    shop.deliver()
    shop.worker().drain()
    shop.send("sku", InventoryItem.release, **by_hand)
    shop.pass_time(minutes=31)
    shop.worker().drain()
    (stuck,) = shop.processes.instances(stuck=timedelta(days=9))
    assert stuck.status == "compensation_failed"
    assert "only 0 of Tea are reserved, 2 to be released" in stuck.problem
    shop.send("sku", InventoryItem.reserve, **by_hand)
    shop.processes.retry("fulfilment", "o1")
    shop.worker().drain()
    assert shop.status("o1") == "compensated"
    assert shop.dispatcher.load(Order, "o1").status == "cancelled"
    assert shop.dispatcher.load(InventoryItem, "sku").reserved == 0
