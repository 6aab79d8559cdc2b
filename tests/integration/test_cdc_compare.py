"""Captured tables compared with the states that a real runner makes of them, and repaired by a real connector."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from cdc import ConnectClient, apply_connector
from cdc.comparing.report import ComparisonProgress
from cdc.errors import ConnectorTimeout
from cdc.source.signals import Signals
from eventstore.settings import Settings
from projections import Environment, Table, rebuild
from tests.errors import raises
from tests.integration.compared import Shop, group_of, opened_views, repairable_source
from tests.integration.conftest import Captured
from tests.integration.following import followed
from tests.rows import each_row


@pytest.fixture(scope="module")
def views(spark: Any, settings: Settings, captured: Callable[[], Captured]) -> Iterator[Environment]:
    with opened_views(spark, settings, captured()) as environment:
        yield environment


def model(table: str, **columns: Any) -> sa.Table:
    """A table with an id and columns."""
    key = sa.Column("id", sa.Integer, primary_key=True)
    return sa.Table(table, sa.MetaData(), key, *(sa.Column(column, kind) for column, kind in columns.items()))


# Each table as it is created, and as the model has it. One model knows the column that is still to come.
TABLES = {
    "added": ("name text", model("added", name=sa.Text, tier=sa.Text)),
    "truncated": ("name text", model("truncated", name=sa.Text)),
    "by_hand": ("name text", model("by_hand", name=sa.Text)),
}


def rows_of(table: str, first: int, last: int) -> str:
    """Insert rows. Those of no two tables are the same."""
    return f"INSERT INTO {table} SELECT n, '{table} ' || n FROM generate_series({first}, {last}) n"


@pytest.fixture(scope="module")
def shop(
    captured: Callable[[], Captured], connect: ConnectClient, settings: Settings, views: Environment
) -> Iterator[Shop]:
    """Rows of each table come from the first snapshot, 1 to 20, and as streamed changes, 21 to 40; a runner follows."""
    database = captured()
    database.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY, {columns})" for name, (columns, _) in TABLES.items()))
    database.run(*(rows_of(name, 1, 20) for name in TABLES))
    source = repairable_source(database, *TABLES, partitions=2)
    apply_connector(connect, database.prepared(source), source=database.engine)
    database.run(*(rows_of(name, 21, 40) for name in TABLES))
    tables = {
        name: Table.from_changelog(
            one, topic=source.topic(f"public.{name}"), null_if_absent=["tier"] if name == "added" else ()
        )
        for name, (_, one) in TABLES.items()
    }
    group = group_of(database.name, **tables)
    rebuild(views, group)
    with followed(views, group):
        yield Shop(database, source, settings, views, group)


@pytest.fixture
def signals(shop: Shop, connect: ConnectClient) -> Signals:
    return Signals(shop.database.engine, shop.source, shop.settings, connect)


def keys(*numbers: int) -> tuple[tuple[str], ...]:
    return tuple((str(number),) for number in numbers)


def test_a_table_that_a_runner_follows_is_equal_to_its_source(shop: Shop) -> None:
    (found,) = shop.compare(tables=["public.by_hand"])
    assert (found.table, found.source_rows, found.equal) == ("public.by_hand", 40, True)


ALL = range(1, 41)
FAULTS = {
    "added": ("ALTER TABLE added ADD COLUMN tier text DEFAULT 'basic'", ((), (), keys(*ALL)), {("tier",)}),
    "truncated": ("TRUNCATE truncated", ((), keys(*ALL), ()), set()),
}


@each_row("table", FAULTS)
def test_what_a_change_of_the_schema_leaves_wrong_is_found_and_repaired(
    shop: Shop, signals: Signals, table: str
) -> None:
    statement, wrong, columns = FAULTS[table]
    shop.database.run(statement)
    (found,) = shop.compare(tables=[f"public.{table}"])
    assert (found.missing, found.extra, found.differing) == wrong
    assert set(found.differing_columns.values()) == columns
    (repaired,) = shop.compare(tables=[f"public.{table}"], repair=signals)
    assert (repaired.equal, repaired.repaired) == (True, len(ALL))
    assert shop.compare(tables=[f"public.{table}"])[0].equal


def test_rows_that_were_deleted_from_the_state_by_hand_are_found_and_repaired(shop: Shop, signals: Signals) -> None:
    state = '"{0}".state_by_hand'
    shop.in_state(f"DELETE FROM {state} WHERE id IN (5, 25)")
    shop.in_state(f"UPDATE {state} SET _deleted = true WHERE id IN (6, 26)")
    shop.in_state(f"UPDATE {state} SET name = 'another' WHERE id IN (7, 27)")
    (found,) = shop.compare(tables=["public.by_hand"])
    assert (found.missing, found.differing) == (keys(5, 6, 25, 26), keys(7, 27))
    (repaired,) = shop.compare(tables=["public.by_hand"], repair=signals)
    assert (repaired.equal, repaired.repaired) == (True, 6)


def test_a_row_that_is_changed_after_its_correction_was_written_shows_the_change(shop: Shop, signals: Signals) -> None:
    shop.database.run("UPDATE by_hand SET name = 'later' WHERE id IN (7, 25, 27)", "DELETE FROM by_hand WHERE id = 26")
    (found,) = shop.compare(tables=["public.by_hand"])
    assert (found.source_rows, found.equal) == (39, True)


def test_what_the_source_does_while_a_repair_is_on_its_way_wins_over_the_repair(shop: Shop, signals: Signals) -> None:
    both = ["public.by_hand", "public.truncated"]
    shop.database.run("INSERT INTO truncated VALUES (50, 'first')")
    assert shop.compare(tables=both)[1].equal
    shop.database.run("TRUNCATE truncated")
    shop.in_state("UPDATE \"{0}\".state_by_hand SET name = 'another' WHERE id = 30")

    def change(now: ComparisonProgress) -> None:
        if now.step == "repairing" and now.table == "public.by_hand":
            shop.database.run("UPDATE by_hand SET name = 'newest' WHERE id = 30")
        elif now.step == "repairing":
            shop.database.run("INSERT INTO truncated VALUES (50, 'back')")

    found = shop.compare(tables=both, repair=signals, on_progress=change)
    assert [(one.equal, one.repaired > 0) for one in found] == [(True, True)] * 2
    assert shop.state_rows('SELECT name FROM "{0}".state_by_hand WHERE id = 30') == ["newest"]
    assert shop.state_rows('SELECT name FROM "{0}".state_truncated WHERE NOT _deleted') == ["back"]
    shop.database.run("DELETE FROM truncated")


def test_rows_that_writers_change_meanwhile_are_no_differences(shop: Shop) -> None:
    stop = threading.Event()

    def write() -> None:
        chance = random.Random(1)
        while not stop.is_set():
            number = chance.randint(1, 400)
            shop.database.run(
                f"INSERT INTO by_hand VALUES ({number}, 'w') ON CONFLICT (id) DO UPDATE SET name = by_hand.name || 'w'",
                f"DELETE FROM by_hand WHERE id = {chance.randint(1, 400)}",
            )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [one for _ in range(5) for one in shop.compare(tables=["public.by_hand"], chunk=50)]
    finally:
        stop.set()
        writer.join()
    assert [(one.missing, one.extra, one.differing) for one in found] == [((), (), ())] * 5
    assert shop.compare(tables=["public.by_hand"])[0].equal


def test_the_command_tells_what_differs_and_repairs_it(
    shop: Shop, cdc_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTFOLD_VIEWS_URL", shop.views_url)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", shop.settings.kafka.bootstrap_servers)
    command = cdc_of(shop.database, source=shop.source, views=shop.group)
    run = partial(command, "compare", "declared_here:source", "--group", "declared_here:views", "--json")
    shop.in_state("UPDATE \"{0}\".state_added SET name = 'another' WHERE id = 30")
    found = run("--table", "public.added")
    told = json.loads(found.stdout)
    assert (found.exit_code, told["differing"], told["keys"]["differing"]) == (3, 1, [{"id": "30"}])
    assert told["differing_columns"] == [{"key": {"id": "30"}, "columns": ["name"]}]
    repaired = run("--table", "public.added", "--repair")
    assert (repaired.exit_code, json.loads(repaired.stdout)["repaired"]) == (0, 1)


def test_a_rebuild_from_the_corrected_topics_gives_what_was_repaired(shop: Shop) -> None:
    rebuild(shop.environment, shop.group)
    found = {one.table: (one.missing, one.extra, one.differing) for one in shop.compare()}
    assert found == {f"public.{name}": ((), (), ()) for name in TABLES}


def test_a_state_whose_runner_stands_still_is_said_to_be_behind(shop: Shop) -> None:
    shop.environment.store.set_paused(shop.group.name, paused=True)
    shop.database.run("UPDATE by_hand SET name = 'unseen'")
    with raises(
        ConnectorTimeout,
        code="state-behind",
        match=r"did not come to the end of its topic in 3 s\n.*factfold projections run",
    ):
        shop.compare(tables=["public.by_hand"], patience=3.0)
    shop.environment.store.set_paused(shop.group.name, paused=False)
    assert shop.compare(tables=["public.by_hand"])[0].equal
