"""Histories on both roads: rows as of any moment are what the tables held then, by the clocks of the databases."""

from __future__ import annotations

import pytest

from eventstore import Dispatcher
from projections import ProjectionGroup, history, open_runner, rebuild, rows_as_of, verify
from tests.conformance.kiosk import customers, orders
from tests.conformance.kiosk_history import _NEVER, KioskHistory
from tests.conformance.roads import embedded_road, server_road

customer_history = history("customer_history", customers)
order_history = history("order_history", orders)
GROUP = ProjectionGroup("kiosk_histories", [customer_history, order_history])


@pytest.fixture(params=["embedded", pytest.param("servers", marks=pytest.mark.faults)])
def road(request, spark, tmp_path):
    if request.param == "embedded":
        opened = embedded_road(spark, tmp_path)
    else:
        opened = server_road(spark, request.getfixturevalue("stack"), request.getfixturevalue("connect"))
    with opened as road:
        yield road


def by_key(road, view, moment):
    found = rows_as_of(road.environment.store, GROUP, view, moment).drop(["valid_from", "valid_to", "is_current"])
    (key,) = view.by
    return {row[key]: row for row in found.to_pylist()}


def test_rows_as_of_a_moment_are_those_that_the_tables_held_then(road):
    life = KioskHistory(Dispatcher(road.store), road.store.engine, seed=4)
    life.steps(40)
    road.wait_until_captured()
    rebuild(road.environment, GROUP)
    with open_runner(road.environment, GROUP) as runner:
        life.steps(40)
        road.wait_until_captured()
        runner.catch_up()
    assert len(life._moments) > 5
    for moment, there in life._moments:
        assert by_key(road, customer_history, moment) == there, moment
    assert by_key(road, customer_history, _NEVER) == life.customers
    handed_over = {key: row["customer_id"] for key, row in by_key(road, order_history, _NEVER).items()}
    assert handed_over == {key: order["customer_id"] for key, order in life.orders.items()}
    assert all(verdict.equal for verdict in verify(road.environment, GROUP).values())
