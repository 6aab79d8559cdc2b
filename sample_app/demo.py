"""make demo: the shop on the whole road, told step by step, with its facts in build/demo.json."""

from __future__ import annotations

import random
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from eventstore import Dispatcher, Refusal, WrongExpectedVersion
from factfold.stack import LocalStack, StackInfo, spark_jars
from projections import Environment, rebuild, verify
from sample_app.background import live_views
from sample_app.customers.model import Base, Customer
from sample_app.inventory import InventoryItem
from sample_app.latency import LatencyWatch
from sample_app.orders import Order
from sample_app.road import Road, lay_road
from sample_app.shop import place_order
from sample_app.story import Story
from sample_app.versions import running_versions
from sample_app.views import shop_views

CUSTOMERS, ARTICLES, FIRST_ORDERS, LIVE_ORDERS = 200, 40, 1_500, 150


def main() -> None:
    """Run the demonstration; any failure ends it with an exit code other than 0."""
    story = Story("Factfold: a shop on real servers")
    story.facts["versions"] = running_versions()
    stack = LocalStack("demo", ephemeral=True)
    with story.step("PostgreSQL, Kafka and Kafka Connect started"):
        stack.up()
    try:
        _tell(story, stack.info)
    finally:
        stack.down()
    story.write(Path("build/demo.json"))


def _tell(story: Story, info: StackInfo) -> None:
    story.say(f"PostgreSQL {info.postgres.port} · Kafka {info.bootstrap_servers} · Connect {info.connect_url}")
    with story.step("database, event store, topics and two Debezium connectors made"):
        road = lay_road(info, "shop", aggregates=[Order, InventoryItem], tables=Base.metadata)
    shop = ShopTraffic(road)
    with story.step(f"{CUSTOMERS} customers written, {ARTICLES} articles received, {FIRST_ORDERS} orders tried"):
        shop.open()
        for _ in range(FIRST_ORDERS):
            shop.order()
    shop.tell(story)
    with story.step("Spark started"):
        environment = Environment.open(road.settings, views_url=road.views_url, jars=spark_jars())
    with story.step("view order_details built from the topics"):
        built = rebuild(environment, shop_views)
    story.say(f"{built.records:,} offsets read, {built.rows['order_details']:,} rows in the view")
    _live(story, road, environment, shop)
    _prove(story, environment, shop, road)


def _live(story: Story, road: Road, environment: Environment, shop: ShopTraffic) -> None:
    watch = LatencyWatch(road, topic=Order.category, view="order_details", key="order_id")
    with live_views(environment, shop_views):
        _change_a_customer(story, road)
        with story.step(f"{LIVE_ORDERS} orders placed while the view follows"), watch.watching():
            for _ in range(LIVE_ORDERS):
                if accepted := shop.order():
                    watch.accepted(accepted)
                time.sleep(0.1)
            watch.wait(deadline=60)
    story.facts["latency_ms"] = watch.percentiles()
    for side, measured in story.facts["latency_ms"].items():
        story.say(f"command accepted → {side}: median {measured['p50']} ms, 99 % within {measured['p99']} ms")


def _change_a_customer(story: Story, road: Road) -> None:
    views = sa.create_engine(road.views_url)
    of_seven = sa.text(
        "SELECT order_id, status, customer, credit_score, title, amount FROM order_details"
        " WHERE customer_id = 7 ORDER BY order_id LIMIT 3"
    )

    def rows() -> list[dict[str, Any]]:
        with views.connect() as connection:
            return [dict(row) for row in connection.execute(of_seven).mappings()]

    def score(value: int) -> None:
        with Session(road.engine) as session, session.begin():
            session.get_one(Customer, 7).credit_score = value

    score(700)
    _until(lambda: all(row["credit_score"] == 700 for row in rows()))
    story.rows("customer 7's orders, before", rows())
    with story.step("an UPDATE in the customers table reaches every order of customer 7"):
        score(123)
        _until(lambda: all(row["credit_score"] == 123 for row in rows()))
    story.rows("after", rows())
    views.dispose()


def _until(condition: Any, *, deadline: float = 60.0) -> None:
    until = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"the view did not follow within {deadline} s")
        time.sleep(0.02)


def _prove(story: Story, environment: Environment, shop: ShopTraffic, road: Road) -> None:
    with story.step("the live view compared with a recomputation from the whole log"):
        verdicts = verify(environment, shop_views)
    story.facts["commands"] = {"accepted": shop.accepted, "refused": dict(shop.refused)}
    with road.engine.connect() as connection:
        events = road.store.tables.events
        counted = sa.select(events.c.type, sa.func.count()).group_by(events.c.type)
        story.facts["events"] = {kind: count for kind, count in connection.execute(counted)}
    story.facts["views"] = {
        name: {"rows": v.rows, "digest": v.digest, "recomputed_digest": v.recomputed_digest}
        for name, v in verdicts.items()
    }
    for name, verdict in verdicts.items():
        if not verdict.equal:
            raise SystemExit(f"{name} differs from its recomputation at keys {verdict.differing_keys}")
        story.say(f"{name}: {verdict.rows:,} rows, digest {verdict.digest[:16]}… both ways")


class ShopTraffic:
    """Customers, articles and orders, from one seed; counts what was accepted and refused."""

    def __init__(self, road: Road, *, seed: int = 2013) -> None:
        self._road = road
        self._random = random.Random(seed)
        self._dispatcher = Dispatcher(road.store)
        self._orders = 0
        self.accepted = 0
        self.refused: Counter[str] = Counter()

    def open(self) -> None:
        """Write the customers, receive the first stock."""
        with Session(self._road.engine) as session, session.begin():
            for number in range(1, CUSTOMERS + 1):
                score = self._random.randint(300, 900)
                session.add(
                    Customer(id=number, name=f"Customer {number}", email=f"c{number}@shop.test", credit_score=score)
                )
        for number in range(ARTICLES):
            self._dispatcher.send(f"sku-{number}", InventoryItem.receive, title=f"Article {number}", quantity=120)

    def order(self) -> str | None:
        """Try one order, and now and then ship or cancel one; returns its id if it was accepted."""
        self._orders += 1
        order_id = f"o{self._orders}"
        quantity = self._random.randint(0, 6)  # 0 is refused by the order, too many by the article
        result = place_order(
            self._dispatcher, order_id, customer_id=self._random.randint(1, CUSTOMERS),
            sku=f"sku-{self._random.randrange(ARTICLES)}", quantity=quantity,
            amount=Decimal(quantity * self._random.randint(100, 9_999)) / 100,
        )  # fmt: skip
        if isinstance(result, Refusal):
            self.refused["out of stock" if "left" in result.reason else result.reason] += 1
            return None
        self.accepted += 1
        self._follow_up()
        return order_id

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


if __name__ == "__main__":
    main()
