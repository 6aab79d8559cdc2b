"""Values and keys of every type, held against the states that a real runner makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from cdc import ConnectClient, apply_connector
from cdc.source.signals import Signals
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from projections import Environment, Table, rebuild
from tests.integration.compared import Shop, group_of, opened_views, repairable_source
from tests.integration.conftest import Captured
from tests.integration.following import followed
from tests.recordings import every_type
from tests.tiers import first_of

# Debezium has no text for bits of varying length that a view can hold.
COLUMNS = [case for case in every_type.CASES if case.name != "vbits"]
# The odd values are those that a view refuses.
ROWS = [row for row in every_type.ROWS if row != "odd"]


@pytest.fixture(scope="module")
def views(spark: Any, settings: Settings, captured: Callable[[], Captured]) -> Iterator[Environment]:
    with opened_views(spark, settings, captured()) as environment:
        yield environment


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


def test_a_value_of_every_type_is_equal_in_the_source_and_in_the_state(every_type_shop: Shop) -> None:
    (found,) = every_type_shop.compare()
    assert found.not_compared == {}
    assert found.differing_columns == {}
    assert (found.source_rows, found.state_rows) == (len(ROWS), len(ROWS))
    assert found.equal


def test_a_column_of_every_type_is_held_against_the_source(every_type_shop: Shop) -> None:
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
    database = captured()
    database.run(*(f"CREATE TABLE {name} (k {ddl} PRIMARY KEY, name text)" for name, (ddl, _, _) in KEYS.items()))
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
def test_rows_are_found_and_repaired_by_keys_of_every_type(
    keyed_shop: Shop, connect: ConnectClient, table: str
) -> None:
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
