"""Histories of personal columns: an erasure reaches every version of its person, live and in a rebuild."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, STREAM_EXISTS
from eventstore.identifiers import StreamName
from projections import ProjectionGroup, history, open_runner, rebuild, rows_as_of, verify
from tests.conformance.guests import Guest, GuestHistory
from tests.conformance.history_oracle import in_order, lasting
from tests.conformance.test_personal_views import Road, caught_up, embedded, servers
from tests.tiers import first_of

COLUMNS = ("name", "born", "credit", "plan")


@pytest.fixture(params=["embedded"])
def road(request, spark):
    """The guests' history instead of their cards."""
    if request.param == "embedded":
        roads = embedded(spark, request.getfixturevalue("tmp_path"))
    else:
        roads = servers(spark, request.getfixturevalue("stack"), request.getfixturevalue("database"))
    for found in roads:
        guests = found.group.tables["guests"]
        yield dataclasses.replace(found, group=ProjectionGroup("guests", [history("guest_history", guests)]))


def shown(road):
    with road.environment.store.transaction() as connection:
        rows = connection.execute(sa.text("SELECT * FROM guest_history")).mappings().all()
    return in_order([({**row, "credit": _decimal(row["credit"])}["guest_id"], *_values(row)) for row in rows])


def _values(row):
    born = row["born"]
    return row["name"], None if born is None else str(born), _decimal(row["credit"]), row["plan"]


def _decimal(value):
    return None if value is None else Decimal(value)


def expected(road):
    """The versions of every guest as plain Python makes them of the store's events, which it reads with the keys."""
    streams: dict[str, list[Any]] = {}
    for recorded in road.store.read_all():
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


@first_of("road", "embedded", "servers")
def test_erasures_reach_every_version_live_and_in_a_rebuild(road: Road) -> None:
    guests = GuestHistory(road.store, seed=3)
    guests.steps(25)
    road.publish()
    rebuild(road.environment, road.group)
    assert shown(road) == expected(road)
    with open_runner(road.environment, road.group) as runner:
        guests.steps(25)
        caught_up(road, runner, max_records=7)
        assert shown(road) == expected(road)
    assert all(verdict.equal for verdict in verify(road.environment, road.group).values())
    live = shown(road)
    rebuild(road.environment, road.group)
    assert shown(road) == live
    assert {"(erased)", "(gone)"} <= {name for _, name, *_ in live}


def test_a_person_who_is_erased_is_in_no_version_and_one_who_is_deleted_has_none(road):
    road.store.append("guest-1", [Guest.Registered(name="Ada"), Guest.Upgraded(plan="gold")], expected=ANY)
    road.store.append("guest-2", [Guest.Registered(name="Bob")], expected=ANY)
    road.publish()
    rebuild(road.environment, road.group)
    with open_runner(road.environment, road.group) as runner:
        (now,) = {row.time for row in road.store.read_stream("guest-2")}
        assert [row["name"] for row in as_of(road, now)] == ["Ada", "Bob"]
        road.store.erase("1")
        caught_up(road, runner)
        assert [row["name"] for row in as_of(road, now)] == ["(erased)", "Bob"]
        road.store.delete_stream("guest-2", expected=STREAM_EXISTS)
        caught_up(road, runner)
        assert [row["name"] for row in as_of(road, now)] == ["(erased)"]
    assert all(verdict.equal for verdict in verify(road.environment, road.group).values())


def as_of(road, moment):
    found: list[dict[str, Any]] = rows_as_of(road.environment.store, road.group, "guest_history", moment).to_pylist()
    return found
