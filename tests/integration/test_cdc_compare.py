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
from eventstore.topics import TopicRecord
from projections import Environment, Table, rebuild
from tests.errors import raises
from tests.integration.compared import Shop, group_of, opened_views, repairable_source
from tests.integration.conftest import Captured
from tests.integration.following import followed
from tests.recordings import every_type
from tests.rows import each_row
from tests.tiers import first_of


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
    database = captured(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, {columns})" for name, (columns, _) in TABLES.items())
    )
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


def test_a_table_that_a_runner_follows_is_equal_to_its_source(shop):
    (found,) = shop.compare(tables=["public.by_hand"])
    assert (found.table, found.source_rows, found.equal) == ("public.by_hand", 40, True)


ALL = range(1, 41)
FAULTS = {
    "added": ("ALTER TABLE added ADD COLUMN tier text DEFAULT 'basic'", ((), (), keys(*ALL)), {("tier",)}),
    "truncated": ("TRUNCATE truncated", ((), keys(*ALL), ()), set()),
}


@each_row("table", FAULTS)
def test_what_a_change_of_the_schema_leaves_wrong_is_found_and_repaired(shop, signals, table):
    statement, wrong, columns = FAULTS[table]
    shop.database.run(statement)
    (found,) = shop.compare(tables=[f"public.{table}"])
    assert (found.missing, found.extra, found.differing) == wrong
    assert set(found.differing_columns.values()) == columns
    (repaired,) = shop.compare(tables=[f"public.{table}"], repair=signals)
    assert (repaired.equal, repaired.repaired) == (True, len(ALL))
    assert shop.compare(tables=[f"public.{table}"])[0].equal


def test_rows_that_were_deleted_from_the_state_by_hand_are_found_and_repaired(shop, signals):
    state = '"{0}".state_by_hand'
    shop.in_state(f"DELETE FROM {state} WHERE id IN (5, 25)")
    shop.in_state(f"UPDATE {state} SET _deleted = true WHERE id IN (6, 26)")
    shop.in_state(f"UPDATE {state} SET name = 'another' WHERE id IN (7, 27)")
    (found,) = shop.compare(tables=["public.by_hand"])
    assert (found.missing, found.differing) == (keys(5, 6, 25, 26), keys(7, 27))
    (repaired,) = shop.compare(tables=["public.by_hand"], repair=signals)
    assert (repaired.equal, repaired.repaired) == (True, 6)


def test_a_row_that_is_changed_after_its_correction_was_written_shows_the_change(shop, signals):
    shop.database.run("UPDATE by_hand SET name = 'later' WHERE id IN (7, 25, 27)", "DELETE FROM by_hand WHERE id = 26")
    (found,) = shop.compare(tables=["public.by_hand"])
    assert (found.source_rows, found.equal) == (39, True)


def test_what_the_source_does_while_a_repair_is_on_its_way_wins_over_the_repair(shop, signals):
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


def test_rows_that_writers_change_meanwhile_are_no_differences(shop):
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


def test_the_command_tells_what_differs_and_repairs_it(shop, cdc_of, monkeypatch):
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


def test_a_rebuild_from_the_corrected_topics_gives_what_was_repaired(shop):
    rebuild(shop.environment, shop.group)
    found = {one.table: (one.missing, one.extra, one.differing) for one in shop.compare()}
    assert found == {f"public.{name}": ((), (), ()) for name in TABLES}


def test_a_state_whose_runner_stands_still_is_said_to_be_behind(shop):
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


# ---- Values and keys of every type, held against the states that a real runner makes of them


# Debezium has no text for bits of varying length that a view can hold.
COLUMNS = [case for case in every_type.CASES if case.name != "vbits"]
# The odd values are those that a view refuses.
ROWS = [row for row in every_type.ROWS if row != "odd"]


@pytest.fixture(scope="module")
def every_type_shop(
    captured: Callable[[], Captured], connect: ConnectClient, settings: Settings, views: Environment
) -> Shop:
    database = captured()
    inserts = every_type.insert_statements(1)
    database.run(
        *every_type.create_statements(),
        "ALTER TABLE public.every_type REPLICA IDENTITY FULL",
        *(statement for statement, row in zip(inserts, every_type.ROWS, strict=True) if row in ROWS),
    )
    source = database.source(tables=("public.every_type",), partitions=2)
    apply_connector(connect, database.prepared(source), source=database.engine)
    columns = [sa.Column("id", sa.Integer, primary_key=True), *(sa.Column(c.name, c.type) for c in COLUMNS)]
    model = sa.Table("every_type", sa.MetaData(), *columns)
    table = Table.from_changelog(model, topic=source.topic("public.every_type"), full_identity=True)
    group = group_of(database.name, types=table)
    rebuild(views, group)
    return Shop(database, source, settings, views, group)


def test_a_value_of_every_type_is_equal_in_the_source_and_in_the_state(every_type_shop):
    (found,) = every_type_shop.compare()
    assert found.not_compared == {}
    assert found.differing_columns == {}
    assert (found.source_rows, found.state_rows) == (len(ROWS), len(ROWS))
    assert found.equal


def test_a_column_of_every_type_is_held_against_the_source(every_type_shop):
    names = [case.name for case in COLUMNS]
    nothing = ", ".join(f'"{name}" = NULL' for name in names)
    every_type_shop.in_state(f'UPDATE "{{0}}".state_types SET {nothing} WHERE id = 1')
    (found,) = every_type_shop.compare()
    assert found.differing == (("1",),)
    assert set(found.differing_columns["1",]) == set(names)


# How the key is created and declared, and the SQL of its n-th value; texts in an order that no two databases share.
KEYS: dict[str, tuple[str, list[Any], str]] = {
    "text": ("text", [sa.Text], "chr(64 + n) || CASE WHEN n %% 2 = 0 THEN 'a' ELSE '_É' END"),
    "collated": ('text COLLATE "C.utf8"', [sa.Text], "CASE WHEN n %% 2 = 0 THEN 'a' ELSE 'B' END || n"),
    "padded": ("char(5)", [sa.String(5)], "'k' || n"),
    "quoted": ("text", [sa.Text], "E'it\\'s \\\\ \"' || n"),
    "uuids": ("uuid", [sa.Uuid], "md5(n::text)::uuid"),
    "numbers": ("numeric(8,2)", [sa.Numeric(8, 2)], "n - 10.50"),
    "days": ("date", [sa.Date], "date '2024-02-20' + n"),
    "moments": (
        "timestamptz",
        [sa.DateTime(timezone=True)],
        "timestamptz '2024-01-01 00:00:00.5Z' + n * interval '9 s'",
    ),
    "local_moments": ("timestamp", [sa.DateTime], "timestamp '2024-01-01' + n * interval '9.25 s'"),
    "bigs": ("bigint", [sa.BigInteger], "9007199254740990 + n"),
}


@pytest.fixture(scope="module")
def keyed_shop(
    captured: Callable[[], Captured],
    connect: ConnectClient,
    settings: Settings,
    views: Environment,
    records_of: Callable[..., list[TopicRecord]],
) -> Iterator[Shop]:
    """A table for each kind of key, and one whose key has two columns; 20 rows, all of them streamed."""
    database = captured(
        *(f"CREATE TABLE {name} (k {ddl} PRIMARY KEY, name text)" for name, (ddl, _, _) in KEYS.items())
    )
    database.run("CREATE TABLE pairs (b text, a int, name text, PRIMARY KEY (a, b)) PARTITION BY HASH (a)")
    database.run(
        *(f"CREATE TABLE pairs_{n} PARTITION OF pairs FOR VALUES WITH (MODULUS 2, REMAINDER {n})" for n in (0, 1))
    )
    names = (*KEYS, "pairs")
    source = repairable_source(database, *names, partitions=2)
    apply_connector(connect, database.prepared(source), source=database.engine)
    for name in names:
        database.run(insert_keyed(name, "true"))
    models = {
        name: sa.Table(name, sa.MetaData(), sa.Column("k", kind, primary_key=True), sa.Column("name", sa.Text))
        for name, (_, (kind,), _) in KEYS.items()
    }
    pair = (sa.Column(name, kind, primary_key=True) for name, kind in (("b", sa.Text), ("a", sa.Integer)))
    models["pairs"] = sa.Table("pairs", sa.MetaData(), *pair, sa.Column("name", sa.Text))
    tables = {name: Table.from_changelog(one, topic=source.topic(f"public.{name}")) for name, one in models.items()}
    group = group_of(database.name, **tables)
    shop = Shop(database, source, settings, views, group)
    for topic in source.topics:
        records_of(topic, count=20)
    rebuild(views, group)
    with followed(views, group):
        yield shop


def insert_keyed(table: str, condition: str) -> str:
    key = "'b' || n %% 3, n" if table == "pairs" else KEYS[table][2]
    columns = "b, a, name" if table == "pairs" else "k, name"
    return f"INSERT INTO {table} ({columns}) SELECT {key}, 'row ' || n FROM generate_series(1, 20) n WHERE {condition}"


@first_of("table", "text", *sorted({*KEYS} - {"text"}), "pairs", indirect=False)
def test_rows_are_found_and_repaired_by_keys_of_every_type(keyed_shop, connect, table):
    signals = Signals(keyed_shop.database.engine, keyed_shop.source, keyed_shop.settings, connect)
    name, state = [f"public.{table}"], f'"{{0}}".state_{table}'
    assert keyed_shop.compare(tables=name, chunk=3)[0].equal
    keyed_shop.database.run(f"TRUNCATE {table}", insert_keyed(table, "n NOT IN (4, 5)"))
    assert [len(one.extra) for one in keyed_shop.compare(tables=name, chunk=3)] == [2]
    keyed_shop.in_state(f"DELETE FROM {state} WHERE name IN ('row 7', 'row 8')")
    keyed_shop.in_state(f"UPDATE {state} SET name = 'wrong' WHERE name IN ('row 10', 'row 20')")
    (found,) = keyed_shop.compare(tables=name, chunk=3)
    assert (len(found.missing), len(found.extra), len(found.differing)) == (2, 2, 2)
    assert found.chunks > 6
    (repaired,) = keyed_shop.compare(tables=name, chunk=3, repair=signals)
    assert (repaired.equal, repaired.repaired, repaired.source_rows) == (True, 6, 18)
