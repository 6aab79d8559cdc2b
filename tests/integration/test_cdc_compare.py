"""Captured tables compared with the states that a real runner makes of them, and repaired by a real connector."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from cdc import ComparisonProgress, ConnectClient, JsonWithSchemas, apply
from cdc.errors import StateBehind
from cdc.source.signals import Signals
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from factfold.cli.cdc import compare as command_line
from projections import Environment, Table, rebuild
from tests.integration.compared import Shop, group_of, opened_views, repairable_source
from tests.integration.conftest import Captured
from tests.integration.following import followed


@pytest.fixture(scope="module")
def views(spark: Any, settings: Settings, captured: Callable[[], Captured]) -> Iterator[Environment]:
    with opened_views(spark, settings, captured()) as environment:
        yield environment


def model(table: str, **columns: Any) -> sa.Table:
    """A table with an id and columns."""
    key = sa.Column("id", sa.Integer, primary_key=True)
    return sa.Table(table, sa.MetaData(), key, *(sa.Column(column, kind) for column, kind in columns.items()))


# Each table as it is created, and as the model has it: some models know the change that is still to come.
TABLES = {
    "added": ("name text", model("added", name=sa.Text, tier=sa.Text)),
    "required": ("name text", model("required", name=sa.Text, quantity=sa.Integer)),
    "dropped": ("name text, old text", model("dropped", name=sa.Text, old=sa.Text)),
    "renamed": ("name text, one text", model("renamed", name=sa.Text, other=sa.Text)),
    "scaled": ("name text, amount numeric(12,4)", model("scaled", name=sa.Text, amount=sa.Numeric(12, 4))),
    "left_one": ("name text", model("left_one", name=sa.Text)),
    "right_one": ("name text", model("right_one", name=sa.Text)),
    "truncated": ("name text", model("truncated", name=sa.Text)),
    "by_hand": ("name text", model("by_hand", name=sa.Text)),
}
# What those models declare and the first records lack; without the declaration the rebuild stops at them.
ABSENT = {"added": ["tier"], "required": ["quantity"], "renamed": ["other"]}
VALUES = {"dropped": ", 'old'", "renamed": ", 'value ' || n", "scaled": ", n + 0.1234"}


def rows_of(table: str, first: int, last: int) -> str:
    """Insert rows; those of no two tables are the same."""
    number = "n * 3" if table == "right_one" else "n"
    values = f"{number}, '{table} ' || n{VALUES.get(table, '')}"
    return f"INSERT INTO {table} SELECT {values} FROM generate_series({first}, {last}) n"


@pytest.fixture(scope="module")
def shop(
    captured: Callable[[], Captured], connect: ConnectClient, settings: Settings, views: Environment
) -> Iterator[Shop]:
    """Rows of each table come from the first snapshot, 1 to 20, and as streamed changes, 21 to 40; a runner follows."""
    database = captured()
    database.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY, {columns})" for name, (columns, _) in TABLES.items()))
    database.run(*(rows_of(name, 1, 20) for name in TABLES))
    source = repairable_source(database, *TABLES, partitions=2)
    apply(connect, database.prepared(source), source=database.engine)
    database.run(*(rows_of(name, 21, 40) for name in TABLES))
    tables = {
        name: Table.from_changelog(one, topic=source.topic(f"public.{name}"), null_if_absent=ABSENT.get(name, ()))
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


def test_tables_that_a_runner_follows_are_equal_to_their_source(shop: Shop) -> None:
    found = shop.compare(tables=["public.by_hand", "public.left_one"])
    assert [(one.table, one.source_rows, one.equal) for one in found] == [
        ("public.by_hand", 40, True),
        ("public.left_one", 40, True),
    ]


ALL = range(1, 41)
FAULTS = {
    "added": ("ALTER TABLE added ADD COLUMN tier text DEFAULT 'basic'", {"differing": keys(*ALL)}, ("tier",)),
    "required": (
        "ALTER TABLE required ADD COLUMN quantity int NOT NULL DEFAULT 5",
        {"differing": keys(*ALL)},
        ("quantity",),
    ),
    "renamed": ("ALTER TABLE renamed RENAME COLUMN one TO other", {"differing": keys(*ALL)}, ("other",)),
    "scaled": (
        "ALTER TABLE scaled ALTER COLUMN amount TYPE numeric(12,2)",
        {"differing": keys(*ALL)},
        ("amount",),
    ),
    "truncated": ("TRUNCATE truncated", {"extra": keys(*ALL)}, ()),
}


@pytest.mark.parametrize("table", FAULTS)
def test_what_a_change_of_the_schema_leaves_wrong_is_found_and_repaired(
    shop: Shop, signals: Signals, table: str
) -> None:
    statement, wrong, columns = FAULTS[table]
    shop.database.run(statement)
    (found,) = shop.compare(tables=[f"public.{table}"])
    assert {kind: getattr(found, kind) for kind in ("missing", "extra", "differing")} == {
        "missing": (),
        "extra": (),
        "differing": (),
        **wrong,
    }
    assert set(found.differing_columns.values()) <= {columns}
    (repaired,) = shop.compare(tables=[f"public.{table}"], repair=signals)
    assert repaired.equal
    assert repaired.repaired == len(ALL)
    (again,) = shop.compare(tables=[f"public.{table}"])
    assert again.equal


def test_a_column_that_the_source_has_lost_is_named_and_the_other_columns_are_compared(shop: Shop) -> None:
    shop.database.run("ALTER TABLE dropped DROP COLUMN old")
    (found,) = shop.compare(tables=["public.dropped"])
    assert [fault.partition(";")[0] for fault in found.faults] == ["column old is not in the source"]
    assert (found.missing, found.extra, found.differing, found.equal) == ((), (), (), False)


def test_tables_that_swap_their_names_are_found_and_repaired(shop: Shop, signals: Signals) -> None:
    shop.database.run(
        "ALTER TABLE left_one RENAME TO passing",
        "ALTER TABLE right_one RENAME TO left_one",
        "ALTER TABLE passing RENAME TO right_one",
    )
    both = ["public.left_one", "public.right_one"]
    left, _ = shop.compare(tables=both)
    assert left.missing == keys(*range(42, 121, 3))
    assert left.extra == keys(*(n for n in ALL if n % 3))
    assert left.differing == keys(*range(3, 41, 3))
    assert [found.equal for found in shop.compare(tables=both, repair=signals)] == [True, True]


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


@pytest.fixture
def run(shop: Shop, connect: ConnectClient, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`factfold cdc` with the shop's source and group in the module `compared_here`."""
    declarations = type(sys)("compared_here")
    declarations.source, declarations.views = shop.source, shop.group  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "compared_here", declarations)
    monkeypatch.setenv("FACTFOLD_CONNECT_URL", connect.url)
    monkeypatch.setenv("FACTFOLD_SOURCE_URL", shop.database.engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("FACTFOLD_VIEWS_URL", shop.views_url)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", shop.settings.kafka.bootstrap_servers)
    words = ("compare", "compared_here:source", "--group", "compared_here:views", "--json")
    return lambda *more: CliRunner().invoke(command_line.app, [*words, *more], catch_exceptions=False)


def test_the_command_tells_what_differs_and_repairs_it(shop: Shop, run: Callable[..., Any]) -> None:
    shop.in_state("UPDATE \"{0}\".state_left_one SET name = 'another' WHERE id = 30")
    found = run("--table", "public.left_one")
    told = json.loads(found.stdout)
    assert (found.exit_code, told["differing"], told["keys"]["differing"]) == (3, 1, [{"id": "30"}])
    assert told["differing_columns"] == [{"key": {"id": "30"}, "columns": ["name"]}]
    repaired = run("--table", "public.left_one", "--repair")
    assert (repaired.exit_code, json.loads(repaired.stdout)["repaired"]) == (0, 1)


def test_a_rebuild_from_the_corrected_topics_gives_what_was_repaired(shop: Shop) -> None:
    rebuild(shop.environment, shop.group)
    found = {one.table: (one.missing, one.extra, one.differing) for one in shop.compare()}
    assert found == {f"public.{name}": ((), (), ()) for name in TABLES}


def test_a_state_whose_runner_stands_still_is_said_to_be_behind(shop: Shop) -> None:
    shop.environment.store.set_paused(shop.group.name, paused=True)
    shop.database.run("UPDATE by_hand SET name = 'unseen'")
    with pytest.raises(StateBehind, match=r"did not come to the end of its topic in 3 s\n.*factfold projections run"):
        shop.compare(tables=["public.by_hand"], patience=3.0)
    shop.environment.store.set_paused(shop.group.name, paused=False)
    assert shop.compare(tables=["public.by_hand"])[0].equal


def test_records_with_schemas_and_values_stored_apart_are_repaired(
    captured: Callable[[], Captured],
    connect: ConnectClient,
    settings: Settings,
    views: Environment,
    records_of: Callable[..., list[TopicRecord]],
) -> None:
    database = captured()
    database.run("CREATE TABLE notes (id uuid PRIMARY KEY, day date, body text)")
    source = repairable_source(database, "notes", encoding=JsonWithSchemas(times="adaptive"), epoch=3)
    apply(connect, database.prepared(source), source=database.engine)
    text = "(SELECT string_agg(md5(n::text || m), '') FROM generate_series(1, 1000) m)"
    database.run(
        f"INSERT INTO notes SELECT md5(n::text)::uuid, date '2024-01-01' + n, {text} FROM generate_series(1, 6) n",
        "UPDATE notes SET day = day + 1",
    )
    columns = [sa.Column("id", sa.Uuid, primary_key=True), sa.Column("day", sa.Date), sa.Column("body", sa.Text)]
    model = sa.Table("notes", sa.MetaData(), *columns)
    topic = source.topic("public.notes")
    table = Table.from_changelog(model, topic=topic, encoding="json-with-schemas")
    shop = Shop(database, source, settings, views, group_of(database.name, notes=table))
    records_of(topic, count=12)
    rebuild(views, shop.group)
    signals = Signals(database.engine, source, settings, connect)
    with followed(views, shop.group):
        assert shop.compare()[0].equal
        shop.in_state("UPDATE \"{0}\".state_notes SET body = 'short', day = '2020-01-01'")
        assert len(shop.compare()[0].differing) == 6
        (found,) = shop.compare(repair=signals)
        assert (found.equal, found.repaired) == (True, 6)
        database.run("UPDATE notes SET day = day + 1", "TRUNCATE notes")
        (found,) = shop.compare(repair=signals)
        assert (found.equal, found.repaired, found.source_rows) == (True, 6, 0)
