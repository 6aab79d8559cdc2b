"""Histories on both roads, of persons too: what was valid at a time, also after an erasure."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, STREAM_EXISTS, Dispatcher
from eventstore.identifiers import StreamName
from projections import ProjectionGroup, history, open_runner, rebuild, rows_as_of, verify
from tests.conformance.guests import Guest, GuestHistory
from tests.conformance.history_views import in_order, lasting
from tests.conformance.kiosk import _NEVER, KioskHistory, customers, orders
from tests.conformance.roads import embedded_road, server_road
from tests.conformance.test_personal_views import Road, caught_up, embedded, servers
from tests.tiers import first_of

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


# ---- histories of personal columns


COLUMNS = ("name", "born", "credit", "plan")


@pytest.fixture(params=["embedded"])
def personal_road(request, spark):
    """The guests' history instead of their cards."""
    if request.param == "embedded":
        roads = embedded(spark, request.getfixturevalue("tmp_path"))
    else:
        roads = servers(spark, request.getfixturevalue("stack"), request.getfixturevalue("database"))
    for found in roads:
        guests = found.group.tables["guests"]
        yield dataclasses.replace(found, group=ProjectionGroup("guests", [history("guest_history", guests)]))


def shown(personal_road):
    with personal_road.environment.store.transaction() as connection:
        rows = connection.execute(sa.text("SELECT * FROM guest_history")).mappings().all()
    return in_order([({**row, "credit": _decimal(row["credit"])}["guest_id"], *_values(row)) for row in rows])


def _values(row):
    born = row["born"]
    return row["name"], None if born is None else str(born), _decimal(row["credit"]), row["plan"]


def _decimal(value):
    return None if value is None else Decimal(value)


def expected(personal_road):
    """The versions of every guest as plain Python makes them of the store's events, which it reads with the keys."""
    streams: dict[str, list[Any]] = {}
    for recorded in personal_road.store.read_all():
        identity = StreamName.parse(recorded.stream).id
        if not recorded.type.startswith("guest."):
            continue
        (happened,) = Guest.events_of(recorded)
        states = streams.setdefault(identity, [])
        row = {**(states[-1][1] if states else dict.fromkeys(COLUMNS)), **dataclasses.asdict(happened)}
        states.append((recorded.time, row))
    spans = [(identity, *_values(row)) for identity, states in streams.items() for row, *_ in lasting_at(states)]
    return in_order(spans)


def lasting_at(states):
    return lasting([(int(time.timestamp() * 1_000_000), row) for time, row in states])


@first_of("personal_road", "embedded", "servers")
def test_erasures_reach_every_version_live_and_in_a_rebuild(personal_road: Road) -> None:
    guests = GuestHistory(personal_road.store, seed=3)
    guests.steps(25)
    personal_road.publish()
    rebuild(personal_road.environment, personal_road.group)
    assert shown(personal_road) == expected(personal_road)
    with open_runner(personal_road.environment, personal_road.group) as runner:
        guests.steps(25)
        caught_up(personal_road, runner, max_records=7)
        assert shown(personal_road) == expected(personal_road)
    assert all(verdict.equal for verdict in verify(personal_road.environment, personal_road.group).values())
    live = shown(personal_road)
    rebuild(personal_road.environment, personal_road.group)
    assert shown(personal_road) == live
    assert {"(erased)", "(gone)"} <= {name for _, name, *_ in live}


def test_a_person_who_is_erased_is_in_no_version_and_one_who_is_deleted_has_none(personal_road):
    personal_road.store.append("guest-1", [Guest.Registered(name="Ada"), Guest.Upgraded(plan="gold")], expected=ANY)
    personal_road.store.append("guest-2", [Guest.Registered(name="Bob")], expected=ANY)
    personal_road.publish()
    rebuild(personal_road.environment, personal_road.group)
    with open_runner(personal_road.environment, personal_road.group) as runner:
        (now,) = {row.time for row in personal_road.store.read_stream("guest-2")}
        assert [row["name"] for row in as_of(personal_road, now)] == ["Ada", "Bob"]
        personal_road.store.erase("1")
        caught_up(personal_road, runner)
        assert [row["name"] for row in as_of(personal_road, now)] == ["(erased)", "Bob"]
        personal_road.store.delete_stream("guest-2", expected=STREAM_EXISTS)
        caught_up(personal_road, runner)
        assert [row["name"] for row in as_of(personal_road, now)] == ["(erased)"]
    assert all(verdict.equal for verdict in verify(personal_road.environment, personal_road.group).values())


def as_of(personal_road, moment):
    found: list[dict[str, Any]] = rows_as_of(
        personal_road.environment.store, personal_road.group, "guest_history", moment
    ).to_pylist()
    return found
