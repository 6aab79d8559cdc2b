"""Personal values in views: sealed in the state, open in the view, and gone from both once their person is erased.

Live = rebuild = what plain Python reads, on both roads: relay, Kafka, Spark and PostgreSQL; and all in one file.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, MasterKeys, Settings, SqlEventStore, SqlKeyStore
from eventstore.errors import InvalidSeal, KeysMissing
from eventstore.relay import Relay
from projections import Environment, ProjectionGroup, open_runner, rebuild, verify
from projections.errors import ProjectionError
from projections.spark import exchange
from projections.spark.session import small_batch_session
from projections.spark.views.disclosing import Disclosure
from tests.conformance.guests import Booking, Guest, GuestHistory, expected_views, guest_group
from tests.errors import raises
from tests.tiers import first_of

MASTER = MasterKeys({"one": os.urandom(32)})
TYPES = {"born": date.fromisoformat, "credit": Decimal, "amount": Decimal}


@dataclass(frozen=True)
class Road:
    store: SqlEventStore
    environment: Environment
    group: ProjectionGroup
    publish: Callable[[], object]


def embedded(spark, folder):
    from projections.spark.reading.store_source import StoreLog
    from projections.stores.sqlite import SqliteTableStore

    path = folder / "guests.db"
    with ExitStack() as opened:
        store = opened.enter_context(SqlEventStore(f"sqlite:///{path}", keys=MASTER))
        store.create_tables()
        store.register(Guest, Booking)
        keys = opened.enter_context(SqlKeyStore(f"sqlite:///{path}", MASTER))
        tables = opened.enter_context(closing(SqliteTableStore(path)))
        tables.prepare()
        environment = Environment.of(spark, small_batch_session(spark), tables, StoreLog(tables.path), keys)
        yield Road(store, environment, guest_group("guest", "booking"), lambda: None)


def servers(spark, stack, database):
    from projections.spark.reading.kafka_source import KafkaLog
    from projections.stores.postgres import PostgresTableStore

    settings, own, url = Settings.for_broker(stack.info.bootstrap_servers), uuid.uuid4().hex[:8], database()
    with ExitStack() as opened:
        store = opened.enter_context(SqlEventStore(url, keys=MASTER))
        store.create_tables()
        topics = [f"{category}_{own}" for category in ("guest", "booking")]
        for category, topic in zip(("guest", "booking"), topics, strict=True):
            store.declare_category(category, partitions=2, topic=topic)
        store.register(Guest, Booking)
        keys = opened.enter_context(SqlKeyStore(url, MASTER))
        tables = opened.enter_context(closing(PostgresTableStore(database())))
        tables.prepare()
        publish = partial(Relay(store, settings).run, stop=threading.Event(), once=True)
        publish()
        environment = Environment.of(spark, small_batch_session(spark), tables, KafkaLog(settings), keys)
        yield Road(store, environment, guest_group(*topics), publish)


@pytest.fixture(params=["embedded"])
def road(request, spark):
    if request.param == "embedded":
        yield from embedded(spark, request.getfixturevalue("tmp_path"))
    else:
        yield from servers(spark, request.getfixturevalue("stack"), request.getfixturevalue("database"))


ON_BOTH_ROADS = first_of("road", "embedded", "servers")


@pytest.fixture
def rows_travel(request, monkeypatch):
    if request.param == "by executors":
        monkeypatch.setattr(exchange, "DRIVER_ROWS", 3)


def view_rows(road):
    found = {}
    with road.environment.store.transaction() as connection:
        for view in road.group.views:
            chosen = "guest_id, name, born, credit, plan" if view.name == "guest_history" else "*"
            order = "ORDER BY valid_from" if view.name == "guest_history" else ""
            rows = connection.execute(sa.text(f"SELECT {chosen} FROM {view.name} {order}")).mappings()
            typed = [[TYPES[c](v) if isinstance(v, str) and c in TYPES else v for c, v in r.items()] for r in rows]
            found[view.name] = {row[0]: tuple(row[1:]) for row in typed}
    found["guest_history"] = {}
    for key, *values in typed:
        found["guest_history"].setdefault(key, []).append(tuple(values))
    return found


def caught_up(road, runner, *, max_records=1000):
    """Apply everything there is; returns how many rows of views were written."""
    road.publish()
    written = 0
    while report := runner.run_once(max_records=max_records):
        written += report.upserts
    return written


def stored_state(road):
    """Whatever the state tables of the serving generation hold."""
    store = road.environment.store
    with store.transaction() as connection:
        names = sa.inspect(connection).get_table_names(
            schema="factfold_guests_1" if "postgres" in store.place else None
        )
        states = [name for name in names if "state_" in name]
        assert len(states) == 3
        prefix = "factfold_guests_1." if "postgres" in store.place else ""
        rows = [connection.exec_driver_sql(f'SELECT * FROM {prefix}"{name}"').all() for name in states]
    return b"|".join(v if isinstance(v, bytes) else str(v).encode() for table in rows for row in table for v in row)


@pytest.mark.parametrize(
    ("road", "rows_travel", "cuts"),
    [
        ("embedded", "by executors", [1_000]),
        pytest.param("servers", "by the driver", [5, 1_000], marks=pytest.mark.faults),
        pytest.param("servers", "by executors", [1_000], marks=pytest.mark.faults),
    ],
    indirect=["road", "rows_travel"],
)
def test_erasures_reach_live_views_and_a_rebuild_as_plain_python_sees_them(road, rows_travel, cuts):
    history = GuestHistory(road.store, seed=7)
    history.steps(40)
    road.publish()
    rebuild(road.environment, road.group)
    assert view_rows(road) == expected_views(road.store)
    with open_runner(road.environment, road.group) as runner:
        for max_records in cuts:
            history.steps(15)
            caught_up(road, runner, max_records=max_records)
            assert view_rows(road) == expected_views(road.store)
    assert b"Ada" not in stored_state(road)
    assert all(verdict.equal for verdict in verify(road.environment, road.group).values())
    live = view_rows(road)
    rebuild(road.environment, road.group)
    assert [state.status for state in road.environment.store.states(road.group.name)] == ["serving"]
    assert view_rows(road) == live
    assert {"(erased)", "(gone)"} & {name for name, *_ in live["guest_cards"].values()}


@pytest.fixture
def followed(road):
    """Two guests with a booking each, and a runner that shows them."""
    for identity, name in (("1", "Ada"), ("2", "Bob")):
        road.store.append(f"guest-{identity}", [Guest.Registered(name=name)], expected=ANY)
        placed = Booking.Placed(guest_id=identity, contact=f"{name}'s", amount=Decimal(2))
        road.store.append(f"booking-{identity}", [placed], expected=ANY)
    road.publish()
    rebuild(road.environment, road.group)
    with open_runner(road.environment, road.group) as runner:
        yield road, runner


@ON_BOTH_ROADS
def test_an_erasure_alone_is_a_batch_and_writes_the_rows_of_its_person(followed: tuple[Road, Any]) -> None:
    road, runner = followed
    assert caught_up(road, runner) == 0
    road.store.erase("1")
    assert caught_up(road, runner) == 4
    found = view_rows(road)
    assert {row[0] for row in found["guest_cards"].values()} == {"(erased)", "Bob"}
    assert found["booking_cards"] == {"1": ("", Decimal(2), "(ERASED)"), "2": ("Bob's", Decimal(2), "BOB")}
    road.store.erase("1")  # nobody is erased twice
    assert caught_up(road, runner) == 0


def test_a_person_who_comes_back_is_seen_under_a_new_key(followed):
    road, runner = followed
    road.store.erase("1")
    road.store.append("guest-1", [Guest.Renamed(name="Ada again")], expected=ANY)
    caught_up(road, runner)
    assert view_rows(road)["guest_cards"]["1"][:3] == ("Ada again", None, Decimal(0))


def test_an_erasure_between_opening_and_commit_is_seen_by_the_next_batch(followed, monkeypatch):
    road, runner = followed
    open_rows = Disclosure.opened

    def erased_right_after(self: Disclosure, rows: Any, table: Any) -> Any:
        found = open_rows(self, rows, table)
        road.store.erase("2")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Disclosure, "opened", erased_right_after)
        road.store.append("guest-2", [Guest.Upgraded(plan="gold")], expected=ANY)
        road.publish()
        runner.run_once()
    assert view_rows(road)["guest_cards"]["2"] == ("Bob", None, Decimal("1.5"), "gold")
    caught_up(road, runner)
    assert view_rows(road) == expected_views(road.store)
    assert view_rows(road)["guest_cards"]["2"][0] == "(erased)"


def test_verify_says_that_an_erasure_waits(followed):
    road, runner = followed
    road.store.erase("2")
    with raises(ProjectionError, code="erasure-waiting", match="do not show it yet"):
        verify(road.environment, road.group)
    caught_up(road, runner)
    assert all(verdict.equal for verdict in verify(road.environment, road.group).values())


def test_without_keys_nothing_is_built_and_nothing_run(road):
    here = road.environment
    keyless = Environment.of(here.spark, here.small, here.store, here.log.log)  # type: ignore[attr-defined]
    for attempt in (rebuild, verify, lambda *given: open_runner(*given).__enter__()):
        with pytest.raises(KeysMissing, match="no keys here to open them"):
            attempt(keyless, road.group)


def test_values_under_keys_of_another_store_stop_the_batch_and_change_nothing(followed, monkeypatch):
    road, runner = followed
    before = view_rows(road)
    with monkeypatch.context() as patched:
        patched.setattr(road.environment.keys, "keys", lambda ids: {})
        road.store.append("guest-2", [Guest.Upgraded(plan="gold")], expected=ANY)
        road.publish()
        with pytest.raises(InvalidSeal, match="was never in this key store"):
            runner.run_once()
    assert view_rows(road) == before
    caught_up(road, runner)
    assert view_rows(road) == expected_views(road.store)
