"""The map of a service and the charts of its groups."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from cdc.connect.status import ConnectorStatus, TaskStatus
from eventstore.backends.sql.outbox import RelayStatus, Waiting
from factfold import on_demand
from factfold.console.pages.connectors import _state
from factfold.console.pages.map import Graph, add_connectors, add_groups
from factfold.console.pages.overview import overview
from factfold.console.pages.standing import GroupState, read_relay
from factfold.console.parts import Places, Trend
from factfold.console.rendering import chart, draw
from factfold.console.sources import Sources
from factfold.discovery import Discovery
from tests.rows import each_row
from tests.unit.console.conftest import Browser, cells


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(("lag", "records"), [(None, None), ({}, 0), ({"order": 4}, 4)])
def test_what_waits_on_an_edge_is_unknown_where_the_lag_is(sources, lag, records, declared):
    row = {"status": "serving", "lag": lag, "lag_seconds": None, "progress": {"order": {0: 2}}}
    graph, definitions = Graph(), sources.definitions if declared else Discovery()
    add_groups(graph, definitions, [GroupState("teashop", None, ("order_details",), [row])])
    of_topic = {source: edge.records for (source, _), edge in graph.edges.items()}
    assert of_topic["topic order"] == records


def test_a_view_feeds_its_delta_table(sources):
    found, (name, group) = Discovery(), next(iter(sources.definitions.groups.items()))
    found.groups[name] = replace(group, views=[replace(view, lake=f"/lake/{view.name}") for view in group.views])
    row = {"status": "serving", "topics": {"/lake/order_details": 3}}
    add_groups(graph := Graph(), found, [GroupState("teashop", None, ("order_details",), [row])])
    (edge,) = (edge for (_, target), edge in graph.edges.items() if target == "table /lake/order_details")
    assert (edge.source, edge.records) == ("view order_details", 3)


def test_every_node_and_edge_of_the_table_is_drawn(browser):
    page, model = browser.page("/map"), browser.json("/api/map")
    assert len(page.css("#map g.node")) == len(model["nodes"]) > 8
    assert len(page.css("#map g.edge")) == len(model["edges"]) == len(cells(page, "#edges"))


def test_a_node_stands_behind_the_last_of_those_before_it_and_a_circle_is_drawn_too():
    drawing = draw(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    assert drawing.spots["a"].x < drawing.spots["b"].x < drawing.spots["c"].x
    drawing = draw(["a", "b", "c"], [("a", "b"), ("b", "a"), ("b", "c")])
    assert set(drawing.spots) == {"a", "b", "c"}
    assert len(drawing.curves) == 3


def test_no_two_nodes_of_a_large_map_share_a_spot():
    names = [f"n{number}" for number in range(500)]
    drawing = draw(names, [(one, names[(n * 7 + 3) % 500]) for n, one in enumerate(names)])
    assert len(set(drawing.spots.values())) == 500


def test_an_edge_inherits_the_longest_delay_before_it():
    graph = Graph()
    a, b, c = (graph.node("topic", name) for name in "abc")
    graph.edge(a, b, records=1, seconds=4.0)
    graph.edge(b, c, records=0)
    graph.edge(c, a)
    found = {(edge.source, edge.target): edge.inherited for edge in graph.with_inherited()}
    assert found[(b, c)] == 4.0


@each_row("order", list(permutations(range(5))))
def test_delays_in_a_circle_do_not_depend_on_the_order_of_its_edges(order):
    edges = [("in", "a", 7.0), ("a", "b", 4.0), ("b", "c", 1.0), ("c", "a", None), ("c", "out", 2.0)]
    graph = Graph()
    for name in ("in", "a", "b", "c", "out"):
        graph.node("topic", name)
    for source, target, seconds in (edges[number] for number in order):
        graph.edge(f"topic {source}", f"topic {target}", seconds=seconds)
    found = {(edge.source, edge.target): edge.inherited for edge in graph.with_inherited()}
    inside = dict.fromkeys([("a", "b"), ("b", "c"), ("c", "a"), ("c", "out")], 11.0)
    assert found == {(f"topic {s}", f"topic {t}"): delay for (s, t), delay in {("in", "a"): None, **inside}.items()}


def connector(name, **config):
    config = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "shop", **config}
    return _state(config, ConnectorStatus(name, "RUNNING", "w", (TaskStatus(0, "RUNNING", "w"),)))


def fed_by(one):
    graph = Graph()
    add_connectors(graph, [one], ["order", "payment"])
    return {target for source, target in graph.edges if source == f"connector {one.name}"}


def test_a_connector_fills_the_topics_of_the_tables_that_it_names():
    tables = connector("tables", **{"table.include.list": r"public\.customers,public\.order_.*,public.items"})
    assert fed_by(tables) == {"topic shop.public.customers", "topic shop.public.items"}


def test_an_outbox_fills_the_topics_of_events():
    router = {"transforms.route.type": "io.debezium.transforms.outbox.EventRouter"}
    assert fed_by(connector("outbox", **router)) == {"topic order", "topic payment"}


def test_a_node_says_how_what_it_stands_for_is(browser):
    page = browser.page("/map")
    health = {node.css_first("title").text().split(":")[0]: node.css(".health") for node in page.css("g.node")}
    said = {name: texts[0].text().split(",")[0] for name, texts in health.items() if texts}
    assert said["table teashop.orders"] == said["view order_details"] == "failed"
    assert said["process payment"] == "healthy"
    assert said["subscription reviews"] in ("healthy", "late")  # nothing reads it: it is late after a minute
    assert "topic order" not in said


def test_a_narrow_window_gets_the_nodes_as_a_list_in_the_order_of_the_drawing(browser):
    lines = [" ".join(line.text().split()) for line in browser.page("/map").css("#nodes li")]
    assert len(lines) == len(browser.json("/api/map")["nodes"])
    assert lines[0] == "aggregate order"
    (orders,) = [line for line in lines if line.startswith("table teashop.orders")]
    assert orders.startswith("table teashop.orders failed")
    assert orders.endswith("← topic order, 2 waiting")


# ---- charts


NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
TIMES = (NOON, NOON + timedelta(seconds=10), NOON + timedelta(seconds=40))


def test_a_chart_lays_samples_out_by_their_times_and_values_over_axes():
    drawn = chart((0.0, 30.0, 15.0), TIMES)
    points = [tuple(map(float, point.split(","))) for point in drawn.points.split()]
    assert points == [(60.0, 110.0), (147.0, 50.0), (408.0, 80.0)]
    assert drawn.values == ((110.0, 0.0), (60.0, 25.0), (10.0, 50.0))
    assert drawn.times == ((60.0, TIMES[0]), (234.0, NOON + timedelta(seconds=20)), (408.0, TIMES[2]))


@each_row(("samples", "top"), [((0.0, 0.0), 1.0), ((0.3, 0.2), 0.5), ((7.0, 1.0), 10.0), ((1.0, 200.0), 200.0)])
def test_the_axis_of_values_ends_at_a_round_one(samples, top):
    assert chart(samples, TIMES[:2]).values[-1][1] == pytest.approx(top)


def test_one_sample_is_no_chart():
    assert chart((1.0,), TIMES[:1]) is None


def test_throughput_is_the_growth_of_a_count_in_a_second():
    rates = Trend((100.0, 150.0, 20.0), "steady", TIMES).per_second()
    assert (rates.samples, rates.times) == ((5.0, 0.0), TIMES[1:])


def test_a_group_has_charts_of_freshness_lag_and_throughput(browser):
    for _ in range(3):
        page = browser.page("/view?group=teashop&view=order_details")
    captions = [" ".join(one.text().split()) for one in page.css("figcaption")]
    assert [one.partition(" in ")[0] for one in captions] == ["freshness", "lag", "throughput"]
    assert captions[1] == "lag in records: 2 steady"
    ticks = [text.text() for text in page.css("svg.chart")[1].css("text")]
    assert ticks[:3] == ["0", "1", "2"]
    assert all(len(tick.split(":")) == 3 for tick in ticks[3:])


def test_a_trend_of_the_overview_stands_in_its_row_and_leads_to_the_charts(browser):
    for _ in range(3):
        page = browser.page("/")
    link = next(one for one in page.css("#watched .trends a") if one.css("svg"))
    assert link.attributes["href"] == "/?kind=group&name=teashop"
    charts = browser.page(link.attributes["href"]).css("#live figcaption")
    assert [one.text().split()[0] for one in charts] == ["freshness", "lag", "throughput"]
    assert browser.page("/?kind=group&name=nothing").css("svg.chart") == []


@pytest.mark.parametrize(
    ("leader", "health", "remedy"),
    [("relay-1", "late", None), (None, "failed", "factfold relay run")],
)
def test_a_relay_is_watched_and_has_charts(shop, monkeypatch, leader, health, remedy):
    """Kafka is stubbed: what the relay says comes from its own function, and the ends of topics from a stub."""

    class Ends:
        def existing(self, topics):
            return list(topics)

        def names(self):
            return []

        def end_offsets(self, topics):
            return {topic: {0: 40, 1: 2} for topic in topics}

    url, old = f"sqlite:///{shop}", datetime.now(UTC) - timedelta(minutes=5)
    status = RelayStatus(leader, (Waiting("order", "order", 7, old), Waiting("tea", "tea", 0, None)))
    monkeypatch.setattr(on_demand, "relay_status", lambda store, settings: status, raising=False)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with Sources(Places(store_url=url, kafka=True), every=0.0, patience=30.0) as sources:
        monkeypatch.setattr(type(sources.clients), "offsets", Ends())
        (row,) = [one for one in overview(sources.look(), {}).watched if one.kind == "relay"]
        assert (row.health, row.records, row.remedy) == (health, 7, remedy)
        assert sources.look().trend("relay relay published").samples[0] == 84.0
        assert "freshness" in Browser(sources).page("/?kind=relay&name=relay").text()


def test_a_service_with_kafka_connect_needs_no_relay(shop):
    places = Places(store_url=f"sqlite:///{shop}", kafka=True, connect_url="http://127.0.0.1:1")
    with Sources(places, every=0.0) as sources:
        assert read_relay(sources.clients) is None
