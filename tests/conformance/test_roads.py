"""The same aggregates, tables, streams and views on both roads: the same commands, the same rows, the same digest."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from eventstore import Dispatcher
from projections import ProjectionGroup, history, open_runner, rebuild, rows_as_of, verify
from projections.errors import NoServingGeneration
from projections.lifecycle import building
from projections.spark.views.view_functions import view_columns
from tests.conformance.kiosk import (
    _NEVER,
    LARGE,
    NOTED,
    NOTES,
    KioskHistory,
    customers,
    kiosk_risk,
    kiosk_sales,
    note_large,
    orders,
)
from tests.conformance.roads import embedded_road, server_road
from tests.integration.rebuild_watching import Killed, killed_at
from tests.waiting import wait_until

customer_history = history("customer_history", customers)
order_history = history("order_history", orders)
GROUP = ProjectionGroup("kiosk", [kiosk_sales, kiosk_risk, customer_history, order_history])


@pytest.fixture(scope="module", params=["embedded", pytest.param("servers", marks=pytest.mark.faults)])
def road(request, spark, tmp_path_factory):
    if request.param == "embedded":
        opened = embedded_road(spark, tmp_path_factory.mktemp("road"))
    else:
        opened = server_road(spark, request.getfixturevalue("stack"), request.getfixturevalue("connect"))
    with opened as road:
        yield road


@pytest.fixture(scope="module")
def life(road):
    """One life for the whole module: each test goes on where the one before stopped."""
    return KioskHistory(Dispatcher(road.store), road.store.engine, seed=11)


def live(road, life, steps):
    life.steps(steps)
    road.wait_until_captured()


@pytest.fixture(scope="module")
def built(road, life):
    """The views built over what had happened before."""
    with pytest.raises(NoServingGeneration), open_runner(road.environment, GROUP):
        pass
    live(road, life, 60)
    rebuild(road.environment, GROUP)
    return road


def assert_as_expected(road, life):
    verdicts = verify(road.environment, GROUP)
    for view, columns in view_columns(road.environment.spark, GROUP).items():
        assert verdicts[view].equal
        assert verdicts[view].rows
        if not view.endswith("history"):
            assert (verdicts[view].digest, verdicts[view].rows) == life.digest(view, columns), view
    assert by_key(road, customer_history, _NEVER) == life.customers
    handed_over = {key: row["customer_id"] for key, row in by_key(road, order_history, _NEVER).items()}
    assert handed_over == {key: order["customer_id"] for key, order in life.orders.items()}


def by_key(road, view, moment):
    """The rows of a history as of a moment."""
    found = rows_as_of(road.environment.store, GROUP, view, moment).drop(["valid_from", "valid_to", "is_current"])
    return {row[view.by[0]]: row for row in found.to_pylist()}


def test_rebuilt_views_are_the_joins_of_what_happened(built, life):
    assert_as_expected(built, life)


def test_live_changes_of_every_side_reach_the_views(built, life):
    with open_runner(built.environment, GROUP) as runner:
        for steps in (1, 40):
            live(built, life, steps)
            runner.catch_up()
    assert_as_expected(built, life)
    assert len(life._moments) > 5
    for moment, there in life._moments:
        assert by_key(built, customer_history, moment) == there, moment


def noted(road):
    with road.store.engine.connect() as connection:
        return sorted(connection.scalars(sa.select(NOTED.c.order_id)))


def deliver_all(road, *, count):
    with road.subscriber(note_large) as subscriber:
        wait_until(
            lambda: not subscriber.run_once().records and len(noted(road)) >= count,
            what=lambda: f"{len(noted(road))} of {count}",
        )


def test_a_subscription_handles_each_event_of_its_branch_once_and_no_other(built, life):
    NOTES.create_all(built.store.engine)
    for steps in (0, 20):
        live(built, life, steps)
        large = sorted(name for name, order in life.orders.items() if order["amount"] > LARGE)
        deliver_all(built, count=len(large))
        assert noted(built) == large


def test_what_was_folded_from_a_deleted_stream_leaves_the_views_and_a_rebuild(built, life):
    with open_runner(built.environment, GROUP) as runner:
        live(built, life, 10)
        runner.catch_up()
        for order in (min(life.orders), max(life.orders)):
            life.delete(built.store, order)
        live(built, life, 10)
        runner.catch_up()
    assert_as_expected(built, life)
    rebuild(built.environment, GROUP)
    assert_as_expected(built, life)
    before = noted(built)
    deliver_all(built, count=0)
    assert set(before) <= set(noted(built))


def test_a_rebuild_in_chunks_that_goes_on_after_a_kill_makes_the_views_from_its_stored_tables(built, life, monkeypatch):
    steps = []

    def killed_at_views(now):
        steps.append(now.step)
        killed_at("views")(now)

    monkeypatch.setattr(building, "CHUNK_RECORDS", 60)
    with pytest.raises(Killed):
        rebuild(built.environment, GROUP, on_progress=killed_at_views)
    assert list(dict.fromkeys(steps)) == ["plan", "tables", "chunks", "views"]
    report = rebuild(built.environment, GROUP)
    assert (report.resumed, report.serves) == (True, True)
    assert_as_expected(built, life)
