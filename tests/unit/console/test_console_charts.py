"""Charts: the samples of a figure over axes of time and of value, each with its unit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventstore.backends.sql.outbox import RelayStatus, Waiting
from factfold import on_demand
from factfold.console.pages.overview import overview
from factfold.console.pages.standing import read_relay
from factfold.console.parts import Places, Trend
from factfold.console.rendering import chart
from factfold.console.sources import Sources
from tests.rows import each_row
from tests.unit.console.conftest import Browser

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
