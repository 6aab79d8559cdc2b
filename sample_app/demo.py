"""make demo: the shop on the whole road, told step by step, with its facts in build/demo.json."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from factfold.stack import LocalStack, StackInfo, spark_jars
from projections import Environment, rebuild, verify
from sample_app.background import live_views
from sample_app.customers.model import Base, Customer
from sample_app.inventory import InventoryItem
from sample_app.latency import LatencyWatch
from sample_app.orders import Order
from sample_app.road import Road, lay_road
from sample_app.story import Story
from sample_app.traffic import ShopTraffic
from sample_app.versions import running_versions
from sample_app.views import shop_views


@dataclass(frozen=True)
class Sizes:
    """How much of a day is played: ``live_orders`` are tried while the view follows, ten a second."""

    customers: int = 200
    articles: int = 40
    first_orders: int = 1_500
    live_orders: int = 150


def main() -> None:
    """Run the demonstration; any failure ends it with an exit code other than 0."""
    story = Story("Factfold: a shop on real servers")
    story.facts["versions"] = running_versions()
    stack = LocalStack("demo", ephemeral=True)
    with story.step("PostgreSQL, Kafka and Kafka Connect started"):
        stack.up()
    try:
        tell(story, stack.info, Sizes())
    finally:
        stack.down()
    story.write(Path("build/demo.json"))


def tell(story: Story, info: StackInfo, sizes: Sizes) -> None:
    """Play the day on a running stack; SystemExit where the view differs from its recomputation."""
    story.say(f"PostgreSQL {info.postgres.port} · Kafka {info.bootstrap_servers} · Connect {info.connect_url}")
    with story.step("database, event store, topics and two Debezium connectors made"):
        road = lay_road(info, "shop", aggregates=[Order, InventoryItem], tables=Base.metadata)
    with closing(road):
        shop = _open_shop(story, road, sizes)
        with story.step("Spark started"):
            environment = Environment.open(road.settings, views_url=road.views_url, jars=spark_jars())
        with closing(environment.store):
            _follow(story, road, environment, shop, sizes)


def _open_shop(story: Story, road: Road, sizes: Sizes) -> ShopTraffic:
    shop = ShopTraffic(road, customers=sizes.customers, articles=sizes.articles)
    text = f"{sizes.customers} customers written, {sizes.articles} articles received, {sizes.first_orders} orders tried"
    with story.step(text):
        shop.open()
        for _ in range(sizes.first_orders):
            shop.order()
    shop.tell(story)
    return shop


def _follow(story: Story, road: Road, environment: Environment, shop: ShopTraffic, sizes: Sizes) -> None:
    with story.step("view order_details built from the topics"):
        built = rebuild(environment, shop_views)
    story.say(f"{built.records:,} offsets read, {built.rows['order_details']:,} rows in the view")
    _live(story, road, environment, shop, sizes.live_orders)
    _prove(story, environment, shop, road)


def _live(story: Story, road: Road, environment: Environment, shop: ShopTraffic, orders: int) -> None:
    watch = LatencyWatch(road, topic=Order.category, view="order_details", key="order_id")
    with live_views(environment, shop_views):
        _change_a_customer(story, road)
        shop.receive()
        with story.step(f"{orders} orders tried while the view follows"), watch.watching():
            for _ in range(orders):
                shop.order(watch.accepted)
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
    _until(lambda: {row["credit_score"] for row in rows()} == {700})
    story.rows("customer 7's orders, before", rows())
    with story.step("an UPDATE in the customers table reaches every order of customer 7"):
        score(123)
        _until(lambda: {row["credit_score"] for row in rows()} == {123})
    story.rows("after", rows())
    views.dispose()


def _until(condition: Callable[[], bool], *, deadline: float = 60.0) -> None:
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
    stored = ", ".join(f"{count:,} {kind}" for kind, count in sorted(story.facts["events"].items()))
    story.say(f"{sum(story.facts['events'].values()):,} events stored: {stored}")
    story.facts["views"] = {
        name: {"rows": v.rows, "digest": v.digest, "recomputed_digest": v.recomputed_digest}
        for name, v in verdicts.items()
    }
    for name, verdict in verdicts.items():
        if not verdict.equal:
            raise SystemExit(f"{name} differs from its recomputation at keys {verdict.differing_keys}")
        story.say(f"{name}: {verdict.rows:,} rows, digest {verdict.digest[:16]}… both ways")


if __name__ == "__main__":
    main()
