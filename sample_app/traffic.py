"""The shop's day: customers, articles, and orders that are placed, shipped, cancelled or refused, from one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal

from sqlalchemy.orm import Session

from eventstore import Dispatcher, Refusal, WrongExpectedVersion
from sample_app.customers import Customer
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.road import Road
from sample_app.shop import place_order
from sample_app.story import Story

DELIVERY = 100  # of each article: less than the first orders want, so that some are refused


class ShopTraffic:
    """Customers, articles and orders, from one seed; counts what was accepted and refused."""

    def __init__(self, road: Road, *, customers: int, articles: int, seed: int = 2013) -> None:
        self._road = road
        self._customers, self._articles = customers, articles
        self._random = random.Random(seed)
        self._dispatcher = Dispatcher(road.store)
        self._orders = 0
        self.accepted = 0
        self.refused: Counter[str] = Counter()

    def open(self) -> None:
        """Write the customers, receive the first stock."""
        with Session(self._road.engine) as session, session.begin():
            for number in range(1, self._customers + 1):
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

    def order(self, accepted: Callable[[str], None] = lambda order_id: None) -> None:
        """Try one order, and now and then ship or cancel one; ``accepted`` is called with its id if it was placed."""
        self._orders += 1
        order_id = f"o{self._orders}"
        quantity = self._random.randint(0, 6)  # 0 is refused by the order, too many by the article
        result = place_order(
            self._dispatcher, order_id, customer_id=self._random.randint(1, self._customers),
            sku=f"sku-{self._random.randrange(self._articles)}", quantity=quantity,
            amount=Decimal(quantity * self._random.randint(100, 9_999)) / 100,
        )  # fmt: skip
        if isinstance(result, Refusal):
            self.refused["out of stock" if "left" in result.reason else result.reason] += 1
            return
        accepted(order_id)
        self.accepted += 1
        self._follow_up()

    def _follow_up(self) -> None:
        chosen = f"o{self._random.randint(1, self._orders)}"
        if self._random.random() < 0.3:
            result = self._dispatcher.send(chosen, Order.ship, carrier="Post")
        elif self._random.random() < 0.1:
            result = self._dispatcher.send(chosen, Order.cancel, reason="changed my mind")
        else:
            return
        if isinstance(result, Refusal):
            self.refused["not in a state to be shipped or cancelled"] += 1
        else:
            self.accepted += 1

    def tell(self, story: Story) -> None:
        """Say what was accepted and refused, and show that a stale writer is turned away."""
        story.say(f"{self.accepted:,} commands accepted, {self.refused.total():,} refused:")
        for reason, count in self.refused.most_common():
            story.say(f"  {count:>5} × {reason}")
        try:
            self._road.store.append("inventory-sku-0", [InventoryItem.Received(title="x", quantity=1)], expected=0)
        except WrongExpectedVersion as refused:
            story.say(f"a writer with a stale version is turned away: {refused.message}")
