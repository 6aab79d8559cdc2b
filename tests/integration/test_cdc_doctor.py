"""What keeps a source from being captured, planted on a live PostgreSQL: found, named, and healed by its remedy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import create_engine

import cdc
from cdc import ApicurioAvro, PostgresSource, Severity, diagnose_connector, prepare_topics
from cdc.errors import SourceNotReady
from cdc.findings import Finding
from cdc.identifiers import quoted
from cdc.source.grants import check_source
from eventstore import RecordedEvent, SqlEventStore, subscription
from eventstore.topics import SCHEMAS_TOPIC as SCHEMAS
from projections import ProjectionGroup, Table, view
from projections.stores.compared import captured_models
from tests.commands import factfold
from tests.integration.conftest import Captured
from tests.rows import each_row

OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any]) -> Any:
    shop = captured()
    shop.run(
        "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL UNIQUE)",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE VIEW seen AS SELECT * FROM items",
        "CREATE TABLE apart (id int PRIMARY KEY)",
        f'CREATE ROLE "{shop.name} clerk"',
    )
    yield shop
    shop.run(f'DROP OWNED BY "{shop.name} clerk"', f'DROP ROLE "{shop.name} clerk"')


@pytest.fixture(scope="module")
def source(shop: Any) -> Any:
    return shop.prepared(shop.source(tables=("public.items", "public.parts")))


def unwell(shop: Any, source: Any) -> list[Finding]:
    found = diagnose_connector(source, source=shop.engine)
    return [one for one in found if one.severity is not OK]


@contextmanager
def planted(shop: Any, source: Any, *statements: str) -> Iterator[None]:
    """Plant a fault, and leave the source as it was."""
    assert unwell(shop, source) == []
    shop.run(*(statement.format(**names(shop, source)) for statement in statements))
    yield
    assert unwell(shop, source) == []


def names(shop: Any, source: Any) -> dict[str, str]:
    return {
        "role": source.user, "publication": source.publication, "database": source.database, "slot": source.slot,
        "clerk": f'"{shop.name} clerk"',
    }  # fmt: skip


# severity, what the finding says, what plants it; the finding's own remedy heals it, as SQL.
HEALED_BY_THEIR_REMEDY = [
    (ERROR, "publication {publication} does not exist", ["DROP PUBLICATION {publication}"]),
    (ERROR, "leaves out every update and delete", ["ALTER PUBLICATION {publication} SET (publish = 'insert')"]),
    (ERROR, "leaves out public.items", ["ALTER PUBLICATION {publication} DROP TABLE items"]),
    (ERROR, "names the partitions of public.parts and not the table",
     ["ALTER PUBLICATION {publication} SET (publish_via_partition_root = false)"]),
    (ERROR, "may not CONNECT to {database}",
     ["REVOKE CONNECT ON DATABASE {database} FROM PUBLIC", "REVOKE CONNECT ON DATABASE {database} FROM {role}"]),
    (ERROR, "may not USE schema public",
     ["REVOKE USAGE ON SCHEMA public FROM PUBLIC", "REVOKE USAGE ON SCHEMA public FROM {role}"]),
    (ERROR, "may not SELECT from public.items", ["REVOKE SELECT ON items FROM {role}"]),
    (ERROR, "lacks LOGIN or REPLICATION", ["ALTER ROLE {role} NOREPLICATION"]),
    (ERROR, "lacks LOGIN or REPLICATION", ["ALTER ROLE {role} NOLOGIN"]),
    (ERROR, "has a password that is no longer valid", ["ALTER ROLE {role} VALID UNTIL 'yesterday'"]),
    (ERROR, "has replica identity NOTHING", ["ALTER TABLE items REPLICA IDENTITY NOTHING"]),
    (ERROR, "an index as replica identity that leaves out its primary key",
     ["ALTER TABLE items REPLICA IDENTITY USING INDEX items_name_key"]),
    (WARNING, "hides rows or columns of public.items",
     ["ALTER PUBLICATION {publication} SET TABLE items WHERE (id > 5), parts"]),
    (WARNING, "hides rows or columns of public.items",
     ["ALTER PUBLICATION {publication} SET TABLE items (id), parts"]),
    (ERROR, "the primary key (id) of public.items is deferrable",
     ["ALTER TABLE items DROP CONSTRAINT items_pkey, ADD CONSTRAINT items_pkey PRIMARY KEY (id) DEFERRABLE"]),
    (WARNING, "may be emptied by {clerk} with TRUNCATE", ["GRANT TRUNCATE ON items TO {clerk}"]),
    (WARNING, "may be emptied by PUBLIC with TRUNCATE", ["GRANT TRUNCATE ON parts TO PUBLIC"]),
]  # fmt: skip


@each_row("severity, words, faults", HEALED_BY_THEIR_REMEDY)
def test_a_fault_is_found_and_its_remedy_heals_it(shop, source, severity, words, faults):
    with planted(shop, source, *faults):
        (found,) = unwell(shop, source)
        assert (found.severity, words.format(**names(shop, source)) in found.result) == (severity, True)
        shop.run(found.remedy)


def test_a_missing_privilege_keeps_a_service_from_being_deployed(shop, source, monkeypatch, connect, settings):
    @subscription("no.such.topic", group="calls", guarantee="at-least-once")
    def call(event: RecordedEvent) -> None: ...

    module = type(sys)("declared_here")
    module.source, module.call = source, call  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "declared_here", module)
    monkeypatch.setenv("FACTFOLD_SOURCE_URL", shop.engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", settings.kafka.bootstrap_servers)
    words = ("preflight", "declared_here:call", "--connectors", "declared_here:source", "--connect-url")
    with planted(shop, source, "REVOKE SELECT ON items FROM {role}"):
        found = factfold(*words, connect.url)
        assert found.exit_code == 3
        assert f"red         connector {source.name}: " in found.stdout
        assert "may not SELECT from public.items" in found.stdout
        assert "yellow      topic no.such.topic: subscription calls reads it, nothing here fills it" in found.stdout
        shop.run(f"GRANT SELECT ON items TO {source.user}")
    found = factfold(*words, "http://127.0.0.1:9")  # where nothing listens
    assert found.exit_code == 3
    assert f"red         connector {source.name}: worker: " in found.stdout


# severity, what the finding says, a part of its remedy, what plants it, what heals it
HEALED_BY_HAND = [
    (
        ERROR, "public.items has no primary key", 'ALTER TABLE "public"."items" ADD PRIMARY KEY (…)',
        ["ALTER TABLE items DROP CONSTRAINT items_pkey"], ["ALTER TABLE items ADD PRIMARY KEY (id)"],
    ),
    (
        ERROR, "public.items is unlogged", 'ALTER TABLE "public"."items" SET LOGGED',
        ["ALTER PUBLICATION {publication} DROP TABLE items", "ALTER TABLE items SET UNLOGGED"],
        ["ALTER TABLE items SET LOGGED", "ALTER PUBLICATION {publication} ADD TABLE items"],
    ),
    (
        ERROR, "row security of public.items hides rows", "BYPASSRLS",
        ["ALTER TABLE items ENABLE ROW LEVEL SECURITY"], ["ALTER TABLE items DISABLE ROW LEVEL SECURITY"],
    ),
    (
        WARNING, "generated columns of public.items never reach its topic while streaming", "trigger",
        ["ALTER TABLE items ADD double int GENERATED ALWAYS AS (id * 2) STORED"], ["ALTER TABLE items DROP double"],
    ),
    (
        WARNING, "no form for columns of public.items, and leaves them out: q tsquery, w money[]", "a column of text",
        ["ALTER TABLE items ADD q tsquery", "ALTER TABLE items ADD w money[]"],
        ["ALTER TABLE items DROP q", "ALTER TABLE items DROP w"],
    ),
    (
        WARNING, "lets more through than is captured, sent and thrown away: public.apart", "DROP TABLE",
        ["ALTER PUBLICATION {publication} ADD TABLE apart"], ["ALTER PUBLICATION {publication} DROP TABLE apart"],
    ),
    (
        WARNING, "slot {slot} has no reader and holds", "factfold cdc resume",
        ["SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"],
        ["SELECT pg_drop_replication_slot('{slot}')"],
    ),
    (
        ERROR, "slot {slot} is of physical replication in no database", "another slot name",
        ["SELECT pg_create_physical_replication_slot('{slot}')"], ["SELECT pg_drop_replication_slot('{slot}')"],
    ),
]  # fmt: skip


@each_row("severity, words, remedy, faults, healing", HEALED_BY_HAND)
def test_a_fault_is_found_with_its_remedy(shop, source, severity, words, remedy, faults, healing):
    with planted(shop, source, *faults):
        found = next(one for one in unwell(shop, source) if words.format(**names(shop, source)) in one.result)
        assert (found.severity, remedy in found.remedy) == (severity, True)
        shop.run(*(statement.format(**names(shop, source)) for statement in healing))


# severity, what the finding says, the column's type, a value; the finding's remedy heals it, as SQL.
COLUMNS_HEALED_BY_THEIR_REMEDY = [
    (ERROR, "more than one dimension arrive without their values", "grid", None),
    (ERROR, "arrays of bits arrive as null", "bit(3)[]", "{101}"),
    (ERROR, "arrive without their microseconds", "time[]", "{01:02:03}"),
    (ERROR, "type name arrive as null", "label", "Ann"),
    (ERROR, "dates and times of 1582 or before", "date[]", "{0044-03-15 BC}"),
    (ERROR, "dates and times of 1582 or before", "timestamptz[]", "{2024-01-01,1582-10-10 12:00+00}"),
    (WARNING, "at a start of summer time", "timestamp[]", None),
]


@each_row("severity, words, kind, value", COLUMNS_HEALED_BY_THEIR_REMEDY)
def test_a_column_of_values_that_do_not_arrive_is_found_and_its_remedy_heals_it(
    shop, source, severity, words, kind, value
):
    made = [
        "CREATE DOMAIN grid AS int[][]",
        "CREATE DOMAIN label AS name",
        f'ALTER TABLE items ADD "50%% {{{{Off}}}}" {kind}',
    ]
    with planted(shop, source, *made):
        with shop.engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO items VALUES (1, 'one', %s)", (value,))
        (found,) = unwell(shop, source)
        assert (found.severity, "50% {Off} " in found.result) == (severity, True)
        assert words in found.result
        shop.run(found.remedy[found.remedy.index("ALTER TABLE") :].partition(";")[0].replace("%", "%%"))
        assert unwell(shop, source) == []
        shop.run('ALTER TABLE items DROP "50%% {Off}"', "DELETE FROM items", "DROP DOMAIN grid, label")


# severity, what the finding says, the column's type, values that are well, one that is not
COLUMNS_OF_VALUES = [
    (WARNING, "a snapshot reads dates before year 1", "date", ["infinity", "-infinity", "0001-01-01"], "0001-12-31 BC"),
    (WARNING, "from 5 to 14 October 1582", "date", ["1582-10-04", "1582-10-15"], "1582-10-14"),
    (ERROR, "more than one dimension", "text[]", ["{}", "{NULL}", "{a,b}"], "{{a},{b}}"),
    (ERROR, "dates and times of 1582 or before", "date[]", ["{}", "{infinity,NULL}"], "{2024-01-01,1582-10-05}"),
]


@each_row("severity, words, kind, well, odd", COLUMNS_OF_VALUES)
def test_a_value_that_does_not_arrive_is_found_among_those_that_do(shop, source, severity, words, kind, well, odd):
    with planted(shop, source, f"ALTER TABLE items ADD odd {kind}"):
        shop.run(*(f"INSERT INTO items VALUES ({n}, 'n{n}', '{value}')" for n, value in enumerate(well, 1)))
        assert unwell(shop, source) == []
        shop.run(f"INSERT INTO items VALUES (0, 'odd', '{odd}')")
        (found,) = unwell(shop, source)
        assert (found.severity, words in found.result, "odd" in found.result) == (severity, True, True)
        shop.run("ALTER TABLE items DROP odd", "DELETE FROM items")


def test_a_default_that_the_registry_does_not_return_is_refused_in_avro(shop, source):
    registry = ApicurioAvro(registry_url="http://127.0.0.1:9/apis/registry/v3")
    with planted(shop, source, "ALTER TABLE items ADD doc jsonb NOT NULL DEFAULT '{{}}'"):
        with pytest.raises(SourceNotReady, match=r"DEFAULT '\{\}': doc jsonb of") as refused:
            check_source(shop.engine, shop.source(tables=source.tables, encoding=registry))
        assert 'ALTER "doc" DROP DEFAULT' in refused.value.remedy
        shop.run("ALTER TABLE items DROP doc")


def test_row_security_says_nothing_of_the_owner_s_own_tables(shop, source):
    with planted(shop, source, "ALTER TABLE items OWNER TO {role}", "ALTER TABLE items ENABLE ROW LEVEL SECURITY"):
        assert unwell(shop, source) == []
        shop.run("ALTER TABLE items FORCE ROW LEVEL SECURITY")
        assert ["row security" in one.result for one in unwell(shop, source)] == [True]
        shop.run("ALTER TABLE items DISABLE ROW LEVEL SECURITY", "ALTER TABLE items NO FORCE ROW LEVEL SECURITY")
        shop.run("ALTER TABLE items OWNER TO postgres", f"GRANT SELECT ON items TO {source.user}")


def test_a_member_of_the_role_that_replicates_on_managed_servers_replicates(shop, source):
    with planted(shop, source, "CREATE ROLE rds_replication", "ALTER ROLE {role} NOREPLICATION"):
        assert ["REPLICATION" in one.result for one in unwell(shop, source)] == [True]
        cdc.prepare_source(shop.engine, source)
        assert unwell(shop, source) == []
        assert shop.rows(f"SELECT rolreplication FROM pg_roles WHERE rolname = '{source.user}'") == [(False,)]
        shop.run("DROP ROLE rds_replication", f"ALTER ROLE {source.user} REPLICATION")


@each_row(
    "table, words",
    [("public.keyless", "has no primary key"), ("public.seen", "is no table"), ("public.gone", "does not exist")],
)
def test_a_table_that_cannot_be_captured_is_never_published(shop, table, words):
    shop.run("CREATE TABLE IF NOT EXISTS keyless (id int)")
    declared = shop.source(name=f"{shop.name}-not", user=f"{shop.name}_not", tables=("public.apart", table))
    with pytest.raises(SourceNotReady, match=words):
        shop.prepared(declared)
    assert shop.rows(f"SELECT 1 FROM pg_publication WHERE pubname = '{declared.publication}'") == []
    assert shop.rows(f"SELECT 1 FROM pg_roles WHERE rolname = '{declared.user}'") == []
    shop.run("INSERT INTO keyless VALUES (1)", "UPDATE keyless SET id = 2")


def test_a_database_that_does_not_answer_is_found(shop, source):
    (found,) = diagnose_connector(source, source=create_engine(shop.engine.url.set(port=9)))
    assert (found.severity, found.check, "start the database" in found.remedy) == (ERROR, "source", True)


@each_row("name", ["-cdc", ' "c"', "; DROP TABLE apart; --", '"; DROP TABLE apart; --', "'; --", "é"])
def test_a_role_of_any_name_is_made_and_looked_at(shop, name):
    role = f"{shop.name}{name}"
    declared = shop.source(name=f"{shop.name}-any", user=role, tables=("public.apart",))
    shop.prepared(declared)
    assert unwell(shop, declared) == []
    shop.run(f"DROP PUBLICATION {declared.publication}", f"REVOKE SELECT ON apart FROM {quoted(role)}")
    assert shop.rows("SELECT to_regclass('apart') IS NOT NULL") == [(True,)]
    checks = {one.check for one in unwell(shop, declared)}
    assert checks == {f"publication {declared.publication}", "table public.apart"}
    shop.run(f"DROP OWNED BY {quoted(role)}", f"DROP ROLE {quoted(role)}")


def test_the_topics_of_an_outbox_are_looked_at_as_its_store_declares_them(shop, settings):
    with SqlEventStore(shop.engine) as store:
        store.create_tables()
        store.declare_category("parcel", partitions=3, topic=f"{shop.name}.parcel")
    declared = shop.outbox()

    def seen(**sides: Any) -> dict[str, Severity]:
        found = diagnose_connector(declared, settings=settings, **sides)
        return {one.check: one.severity for one in found if one.check.startswith("topic") and SCHEMAS not in one.check}

    topic = f"topic {shop.name}.parcel"
    assert seen() == {"topics of events": OK}
    assert seen(source=shop.engine) == {topic: WARNING}
    prepare_topics(settings, [(f"{shop.name}.parcel", 3)])
    assert seen(source=shop.engine) == {topic: OK}
    nobody = create_engine(shop.engine.url.set(port=9))
    assert seen(source=nobody) == {"topics of events": ERROR}
    with shop.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE categories SET partitions = 5")
    assert seen(source=shop.engine) == {topic: ERROR}


ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, amount numeric(12,4))"
# What happens to the table after the model was written → what is found of it.
CHANGES = {
    "nothing": ((), OK, "it has the source's columns"),
    "a new column": (
        ("ALTER TABLE items ADD tier text",), OK, "column tier of the source is not declared in the model",
    ),
    "a column is dropped": (("ALTER TABLE items DROP name",), ERROR, "column name is not in the source"),
    "another type": (
        ("ALTER TABLE items ALTER name TYPE bytea USING name::bytea",), WARNING,
        "column name is bytea in the source, text in the state",
    ),
    "another type of the key": (
        ("ALTER TABLE items ALTER id TYPE text",), ERROR,
        "key column id is text, which has no one order in both databases",
    ),
    "another key": (
        ("ALTER TABLE items DROP CONSTRAINT items_pkey", "ALTER TABLE items ADD PRIMARY KEY (id, amount)"), ERROR,
        "the model's key is id, and the source's primary key is amount, id",
    ),
    "no table": (("DROP TABLE items",), ERROR, "table public.items does not exist in the source"),
}  # fmt: skip


def group_over(topic: str) -> ProjectionGroup:
    columns = (sa.Column("name", sa.Text), sa.Column("amount", sa.Numeric(12, 4)))
    model = sa.Table("items", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), *columns)

    @view(key="id", tables={"items": Table.from_changelog(model, topic=topic)})
    def listed(items):
        return items

    return ProjectionGroup("shop", [listed])


@pytest.fixture(scope="module")
def modelled(captured: Callable[[], Captured]) -> Captured:
    return captured("CREATE TABLE others (id int PRIMARY KEY)")


@pytest.fixture
def listed_source(modelled: Captured) -> PostgresSource:
    modelled.run("DROP TABLE IF EXISTS items", ITEMS)
    return modelled.source(tables=("public.items", "public.others"))


@pytest.mark.parametrize(("changes", "severity", "words"), CHANGES.values(), ids=CHANGES)
def test_what_changed_since_a_model_was_written_is_found_in_the_words_of_a_comparison(
    modelled, listed_source, changes, severity, words
):
    modelled.run(*changes)
    models = [
        *captured_models(group_over(listed_source.topic("public.items"))),
        *captured_models(group_over("another")),
    ]
    found = diagnose_connector(listed_source, source=modelled.engine, models=models)
    told = [one for one in found if one.check == "model shop.items of public.items"]
    first = told[0]
    assert (first.severity, first.result) == (severity, words)
    assert bool(first.remedy) == (severity is not OK)
    assert {one.check for one in found if one.check.startswith("model")} == {"model shop.items of public.items"}


def test_the_command_takes_the_groups_and_fails_for_a_column_that_is_not_there(modelled, listed_source, cdc_of):
    modelled.run("ALTER TABLE items DROP name")
    run = cdc_of(modelled, source=listed_source, views=group_over(listed_source.topic("public.items")))
    told = run("doctor", "declared_here:source", "--group", "declared_here:views", "--no-worker", "--json")
    assert told.exit_code == 3
    (line,) = map(json.loads, told.stdout.splitlines())
    assert ["column name is not in the source"] == [
        one["result"] for one in line["findings"] if one["check"] == "model shop.items of public.items"
    ]
