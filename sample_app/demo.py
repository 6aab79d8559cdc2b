"""make demo: the shop on real servers, step by step, with its figures in build/demo.json."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cdc import compare_tables
from eventstore import Dispatcher, RecordedEvent, Subscription
from factfold.stack import LocalStack, StackInfo, spark_jars, start_lightly
from projections import ComparedGroup, Environment, branch_counts, rebuild, verify
from sample_app.background import Background, wait_until
from sample_app.browsing import Session as BrowsingSession
from sample_app.browsing import Visitors
from sample_app.customers.model import Base, Customer
from sample_app.evening import end_orders, replay_dead_letters, tell_trace
from sample_app.fraud import Remediation
from sample_app.fulfilment import Fulfilment
from sample_app.fulfilment.running import RunningFulfilment, fulfilling
from sample_app.inventory import InventoryItem
from sample_app.latency import LatencyWatch
from sample_app.live import live_views
from sample_app.orders import Order
from sample_app.payments import Payment, Refund, payment_branches
from sample_app.receipts import PrinterJammed, Receipts
from sample_app.road import Road, database_url, lay_road
from sample_app.services import RunningSubscription, delivered, router_process
from sample_app.shipping import shipping
from sample_app.story import Story
from sample_app.traffic import ShopTraffic
from sample_app.versions import running_versions
from sample_app.views import shop_views, time_views

ROUTER_LOG = Path("build/router.log")
GROUPS = (shop_views, time_views)
_JAMMING_CUSTOMER = 7  # whose receipts the printer does not take


class HurriedFulfilment(Fulfilment, category="fulfilment"):
    """The shop's own, in a day of seconds."""

    payment_within = timedelta(seconds=10)


@dataclass(frozen=True)
class Sizes:
    """Size of the demonstration: ``live_orders`` are sent while the views are live, ten a second."""

    customers: int = 200
    articles: int = 40
    first_orders: int = 900
    sessions: int = 200
    live_orders: int = 120


def main() -> None:
    """Run the demonstration; any failure ends it with an exit code other than 0."""
    start_lightly()
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


def tell(
    story: Story, info: StackInfo, sizes: Sizes, *, look: Callable[[Road, Services], None] = lambda road, services: None
) -> None:
    """Play the day on a running stack; SystemExit where a view differs from its recomputation.

    `look` is called in the evening, when everything runs and nothing is repaired yet.
    """
    story.expect(PrinterJammed)
    story.say(f"PostgreSQL {info.postgres.port} · Kafka {info.bootstrap_servers} · Connect {info.connect_url}")
    with story.step("database, event store, topics and two Debezium connectors created"):
        aggregates = [Order, InventoryItem, Payment, Refund, HurriedFulfilment, BrowsingSession]
        road = lay_road(info, "shop", aggregates=aggregates, tables=Base.metadata, history=["customers"])
    watch = LatencyWatch(road, topic=Order.category, view="order_details", key="order_id")
    router = router_process(road.settings, "sample_app.payments:payment_branches", log=ROUTER_LOG)
    with closing(road), router as require_router:
        traffic = _open_shop(story, road, sizes)
        with story.step("Spark started"):
            environment = Environment.open(road.settings, views_url=road.views_url, jars=spark_jars())
        with closing(environment.store), fulfilling(road, HurriedFulfilment) as process:
            _build(story, environment)
            visitors = _browse(story, road, sizes)
            with _services(info, road, watch, process, require_router) as services:
                _live(story, road, environment, Day(traffic, visitors, watch, services, sizes.live_orders, look))
            _prove(story, environment, traffic, road)


def _build(story: Story, environment: Environment) -> None:
    for group in GROUPS:
        names = [view.name for view in group.views]
        with story.step(f"views {' and '.join(names)} built from the topics"):
            built = rebuild(environment, group)
        rows = ", ".join(f"{built.rows[name]:,} rows in {name}" for name in names)
        story.say(f"{built.records:,} offsets read, {rows}")


@dataclass(frozen=True)
class Services:
    """What reacts to events: fulfilment, fraud remediation, shipping, receipts."""

    fulfilment: RunningFulfilment
    remediation: Remediation
    settling: Background
    receipts: Receipts
    fraud: RunningSubscription
    shipping: RunningSubscription
    printing: RunningSubscription
    parcels: sa.Engine
    require_router: Callable[[], None]

    @property
    def subscriptions(self) -> list[RunningSubscription]:
        """Every running subscription."""
        return [self.fraud, self.shipping, self.printing]


@dataclass(frozen=True)
class Day:
    """What happens while the views follow."""

    traffic: ShopTraffic
    visitors: Visitors
    watch: LatencyWatch
    services: Services
    orders: int
    look: Callable[[Road, Services], None]


@contextmanager
def _services(
    info: StackInfo, road: Road, watch: LatencyWatch, process: RunningFulfilment, require_router: Callable[[], None]
) -> Iterator[Services]:
    """Run fraud remediation, shipping and receipts, each on a database of its own, for as long as the block lasts."""
    orders, views = Dispatcher(road.store), sa.create_engine(road.views_url)
    named = (sa.create_engine(database_url(info, f"shop_{name}")) for name in ("fraud", "shipping", "receipts"))
    fraud, parcels, printed = named
    remediation = Remediation(orders, database=fraud, views=views, on_called=watch.reaction.end)
    receipts = Receipts(database=printed, jams_at=_JAMMING_CUSTOMER)
    with ExitStack() as stack:
        for engine in (views, fraud, parcels, printed):
            stack.callback(engine.dispose)

        def run(one: Subscription[..., Any], engine: sa.Engine) -> RunningSubscription:
            return stack.enter_context(delivered([one], settings=road.settings, engine=engine))[0]

        reviewing = run(remediation.subscription(), fraud)
        sending = run(shipping(database=parcels), parcels)
        printing = run(receipts.subscription(), printed)
        settling = Background(remediation.settle, name="settling")
        stack.enter_context(settling.running())
        yield Services(process, remediation, settling, receipts, reviewing, sending, printing, parcels, require_router)


def _open_shop(story: Story, road: Road, sizes: Sizes) -> ShopTraffic:
    traffic = ShopTraffic(road, customers=sizes.customers, articles=sizes.articles)
    text = f"{sizes.customers} customers, {sizes.articles} articles and {sizes.first_orders} order attempts sent"
    with story.step(text):
        traffic.open()
        for _ in range(sizes.first_orders):
            traffic.order()
    traffic.tell(story)
    return traffic


def _browse(story: Story, road: Road, sizes: Sizes) -> Visitors:
    visitors = Visitors(road)
    with story.step(f"{sizes.sessions} visitors search and click"):
        visitors.browse(sizes.sessions)
    return visitors


def _live(story: Story, road: Road, environment: Environment, day: Day) -> None:
    with live_views(environment, shop_views) as run, live_views(environment, time_views):
        with story.step("payments routed to branches, suspicious payments reviewed"):
            wait_until(lambda: _all_handled(day), deadline=120, what="the first payments handled")
        _change_a_customer(story, road)
        forgotten = _orders(story, day)
        with story.step("held orders released or cancelled by the credit score at payment time"):
            settled = _settle(day)
        with story.step("a card tried out with three small payments before a large one"):
            story.facts["card_tests"] = _card_tests(day)
        with story.step("clicks reported late, each counted with the search that it followed"):
            day.visitors.report()
        _evening(story, road, day, forgotten)
        road.wait_until_captured()
        run.wait_until_caught_up()
    _tell_latencies(story, day.watch)
    _tell_services(story, road, day, settled)


def _orders(story: Story, day: Day) -> RecordedEvent:
    """Return the event of an order that stays unpaid."""
    day.traffic.receive()
    day.traffic.try_card()
    forgotten = day.traffic.forget()
    with story.step(f"{day.orders} more order attempts while views and services are live"), day.watch.watching():
        for _ in range(day.orders):
            day.traffic.order(placed=day.watch.accepted, suspected=day.watch.reaction.begin)
            time.sleep(0.1)
        day.watch.wait(deadline=60)
    return forgotten


def _evening(story: Story, road: Road, day: Day, forgotten: RecordedEvent) -> None:
    services, traffic = day.services, day.traffic
    end_orders(story, road, services.fulfilment, placed=traffic.placed, database=services.parcels)
    day.look(road, services)
    replay_dead_letters(story, road, services.receipts, payments=traffic.payments - traffic.suspicious)
    tell_trace(story, road, forgotten)


def _all_handled(day: Day) -> bool:
    """Whether every payment has come to the one service that has to see it."""
    day.services.require_router()
    for running in day.services.subscriptions:
        running.background.require_health()
    day.services.fulfilment.background.require_health()
    printed = day.services.printing.report
    return (day.services.fraud.report.handled, printed.handled + printed.dead) == (
        day.traffic.suspicious,
        day.traffic.payments - day.traffic.suspicious,
    )


def _all_settled(day: Day) -> bool:
    day.services.settling.require_health()
    return "open" not in day.services.remediation.outcomes()


def _settle(day: Day) -> dict[str, int]:
    """Wait until no case is open."""
    wait_until(lambda: _all_handled(day), deadline=60, what="every payment handled")
    wait_until(lambda: _all_settled(day), deadline=60, what="every case settled")
    return day.services.remediation.outcomes()


def _card_tests(day: Day) -> list[dict[str, Any]]:
    """What the fraud service reads of the pattern, once the view shows it."""
    remediation, customer = day.services.remediation, day.traffic.customers

    def shown() -> bool:
        return customer in {row["customer_id"] for row in remediation.card_tests()}

    wait_until(shown, deadline=60, what="the card that was tried out")
    return remediation.card_tests()


def _tell_latencies(story: Story, watch: LatencyWatch) -> None:
    story.facts["latency_ms"] = watch.percentiles()
    for side, measured in story.facts["latency_ms"].items():
        story.say(f"command accepted → {side}: median {measured['p50']} ms, 99 % within {measured['p99']} ms")


def _tell_services(story: Story, road: Road, day: Day, settled: dict[str, int]) -> None:
    reports = {running.group: running.report for running in day.services.subscriptions}
    story.facts["branches"] = branch_counts(road.settings, payment_branches)
    story.facts["subscriber"] = {
        "handled": sum(report.handled for report in reports.values()),
        "duplicates": sum(report.duplicates for report in reports.values()),
        "groups": {group: {"handled": r.handled, "duplicates": r.duplicates} for group, r in reports.items()},
    }
    story.facts["cases"] = settled
    routed = ", ".join(f"{count:,} {name}" for name, count in story.facts["branches"].items())
    story.say(f"payments routed: {routed}")
    for group, report in reports.items():
        story.say(f"{group}: {report.handled:,} events handled, {report.duplicates:,} duplicates")
    story.say("cases: " + ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(settled.items())))


def _change_a_customer(story: Story, road: Road) -> None:
    views = sa.create_engine(road.views_url)
    of_seven = sa.text(
        "SELECT order_id, status, customer, o.credit_score, p.credit_score AS score_when_paid, o.amount"
        " FROM order_details o LEFT JOIN payment_risk p USING (order_id)"
        " WHERE o.customer_id = 7 ORDER BY order_id LIMIT 3"
    )

    def rows() -> list[dict[str, Any]]:
        with views.connect() as connection:
            return [dict(row) for row in connection.execute(of_seven).mappings()]

    def score(value: int) -> None:
        with Session(road.engine) as session, session.begin():
            session.get_one(Customer, 7).credit_score = value

    def shows(value: int) -> bool:
        return {row["credit_score"] for row in rows()} == {value}

    score(700)
    wait_until(lambda: shows(700), deadline=60, what="the view follows")
    story.rows("orders of customer 7 before the UPDATE", rows())
    with story.step("one UPDATE of customer 7 updates all orders of customer 7, and no past payment"):
        score(123)
        wait_until(lambda: shows(123), deadline=60, what="the view follows")
    story.rows("orders of customer 7 after the UPDATE", rows())
    views.dispose()


def _compare(story: Story, road: Road) -> None:
    """Hold the captured rows against their source; SystemExit where they differ."""
    with story.step("captured rows compared with their source"), ComparedGroup(road.views_url, shop_views) as group:
        comparisons = compare_tables(road.engine, road.rows, group.tables, road.settings)
    story.facts["compared"] = {one.table: {"rows": one.source_rows, "equal": one.equal} for one in comparisons}
    for one in comparisons:
        if not one.equal:
            raise SystemExit(f"the state of {one.table} differs from its source: {one}")
        story.say(f"{one.table}: {one.source_rows:,} rows in the source and in the state, equal")


def _prove(story: Story, environment: Environment, traffic: ShopTraffic, road: Road) -> None:
    _compare(story, road)
    with story.step("live views compared with a recomputation from the whole log"):
        verdicts = {name: verdict for group in GROUPS for name, verdict in verify(environment, group).items()}
    story.facts["commands"] = {"accepted": traffic.accepted, "refused": dict(traffic.refused)}
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
    _tell_rates(story, road)
    for name, verdict in verdicts.items():
        if not verdict.equal:
            raise SystemExit(f"{name} differs from its recomputation at keys {verdict.differing_keys}")
        story.say(f"{name}: {verdict.rows:,} rows live and recomputed, equal (digest {str(verdict.digest)[:12]}…)")


def _tell_rates(story: Story, road: Road) -> None:
    views = sa.create_engine(road.views_url)
    with views.connect() as connection:
        rates = connection.execute(sa.text("SELECT * FROM search_ctr ORDER BY term")).mappings()
        story.facts["search_ctr"] = [dict(row) for row in rates]
    views.dispose()
    story.rows("click-through rate of each term", story.facts["search_ctr"])


if __name__ == "__main__":
    main()
