"""The shop's day: customers, articles, and orders that are placed, then paid, cancelled or forgotten, from one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from uuid import uuid4

from sqlalchemy.orm import Session

from eventstore import NO_STREAM, Accepted, Dispatcher, RecordedEvent, Refusal
from eventstore.errors import WrongExpectedVersion
from sample_app.customers import Customer
from sample_app.inventory import InventoryItem
from sample_app.payments import SUSPICIOUS_ABOVE
from sample_app.road import Road
from sample_app.shop import cancel_order, pay_order, place_order
from sample_app.story import Story

DELIVERY = 80  # of each article: less than the first orders want of some, so that these cannot be reserved
CALLED_OFF, FORGOTTEN = 0.1, 0.2  # of the orders, the rest is paid
OrderCallback = Callable[[str], None]


def _ignore(order_id: str) -> None:
    """Do nothing: the default callback."""


class ShopTraffic:
    """Customers, articles, orders and payments, from one seed; counts what was accepted and refused."""

    def __init__(self, road: Road, *, customers: int, articles: int, seed: int = 2013) -> None:
        self._road = road
        self.customers, self._articles = customers, articles
        self._random = random.Random(seed)
        self._dispatcher = Dispatcher(road.store)
        self._orders = 0
        self.accepted = 0
        self.placed = 0
        self.payments = 0
        self.suspicious = 0
        self.refused: Counter[str] = Counter()

    def open(self) -> None:
        """Write the customers, receive the first stock."""
        with Session(self._road.engine) as session, session.begin():
            for number in range(1, self.customers + 1):
                score = self._random.randint(300, 900)
                session.add(
                    Customer(id=number, name=f"Customer {number}", email=f"c{number}@shop.test", credit_score=score)
                )
        self.receive()

    def receive(self) -> None:
        """A delivery of every article."""
        for number in range(self._articles):
            title = f"Article {number}"
            self._dispatcher.send(f"sku-{number}", InventoryItem.receive, title=title, quantity=DELIVERY)

    def order(self, *, placed: OrderCallback = _ignore, suspected: OrderCallback = _ignore) -> None:
        """Try one order, then pay, cancel or forget it. Both callbacks get the id of an accepted order."""
        customer_id = self._random.randint(1, self.customers)
        quantity = self._random.randint(0, 6)  # 0 is refused
        amount = Decimal(max(quantity, 1) * self._random.randint(100, 9_999)) / 100
        sku = f"sku-{self._random.randrange(self._articles)}"
        order_id = self._place(customer_id, sku, quantity, amount)
        if order_id is None:
            return
        placed(order_id)
        fate = self._random.random()
        if fate < CALLED_OFF:
            self._count(cancel_order(self._dispatcher, order_id, reason="changed my mind"))
        elif fate > FORGOTTEN:
            self._pay(order_id, customer_id, amount, suspected)

    def try_card(self) -> None:
        """The last customer pays three small amounts and then a large one, as a stolen card is tried out."""
        for amount in map(Decimal, ("1.00", "2.00", "3.00", "900.00")):
            order_id = self._place(self.customers, "sku-0", 1, amount)
            if order_id is not None:
                self._pay(order_id, self.customers, amount, _ignore)

    def forget(self) -> RecordedEvent:
        """Place an order that stays unpaid, by a command whose name is recorded. Returns its event."""
        self._orders += 1
        once, order_id = self._dispatcher.once(uuid4()), f"o{self._orders}"
        self._dispatcher.send("sku-poems", InventoryItem.receive, title="A book of poems", quantity=1)
        result = place_order(once, order_id, customer_id=1, sku="sku-poems", quantity=1, amount=Decimal("9.99"))
        if isinstance(result, Refusal):
            raise AssertionError(result.reason)
        self.accepted, self.placed = self.accepted + 1, self.placed + 1
        return result.events[0]

    def _place(self, customer_id: int, sku: str, quantity: int, amount: Decimal) -> str | None:
        self._orders += 1
        order_id = f"o{self._orders}"
        result = place_order(
            self._dispatcher, order_id, customer_id=customer_id, sku=sku, quantity=quantity, amount=amount
        )
        if not self._count(result):
            return None
        self.placed += 1
        return order_id

    def _pay(self, order_id: str, customer_id: int, amount: Decimal, suspected: OrderCallback) -> None:
        if self._count(pay_order(self._dispatcher, order_id, customer_id=customer_id, amount=amount)):
            self._paid(order_id, amount, suspected)

    def _paid(self, order_id: str, amount: Decimal, suspected: OrderCallback) -> None:
        self.payments += 1
        if amount > SUSPICIOUS_ABOVE:
            self.suspicious += 1
            suspected(order_id)

    def _count(self, result: Accepted | Refusal) -> bool:
        if isinstance(result, Refusal):
            self.refused[result.reason] += 1
            return False
        self.accepted += 1
        return True

    def tell(self, story: Story) -> None:
        """Report accepted and refused commands, and show that a stale append is refused."""
        story.say(f"{self.accepted:,} commands accepted, {self.refused.total():,} refused:")
        for reason, count in self.refused.most_common():
            story.say(f"  {count:>5} × {reason}")
        try:
            self._road.store.append(
                "inventory-sku-0", [InventoryItem.Received(title="x", quantity=1)], expected=NO_STREAM
            )
        except WrongExpectedVersion as refused:
            story.say(f"a stale append is refused: {refused.message}")
