"""Columns whose values would arrive changed or not at all are named, with what helps; all others pass."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.connectors.encodings import ApicurioAvro, JsonWithSchemas
from cdc.findings import Finding, Severity
from cdc.identifiers import TableName
from cdc.source.captured_columns import captured_columns, of_columns, of_values
from cdc.source.catalogue import ColumnFacts, PublicationFacts, TableFacts
from cdc.source.source_health import of_membership, of_table
from tests.rows import each_row
from tests.unit.cdc.declared import postgres

AVRO = ApicurioAvro(registry_url="http://registry:8080/apis/registry/v3")
ITEMS = TableName.parse("public.items")
OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


def column(type: str = "int4", written: str = "it", **facts: Any) -> ColumnFacts:
    return ColumnFacts("c", written, type, **facts)


def array(type: str, dimensions: int = 1, modifier: int = -1) -> ColumnFacts:
    return column(type, is_array=True, dimensions=dimensions, modifier=modifier)


def by_type(*columns: ColumnFacts, **declared: Any) -> list[Finding]:
    return list(of_columns(columns, ITEMS, postgres(**declared).config()))


FAULTY_TYPES = [
    (array("int4", 2), ERROR, "more than one dimension", "TYPE jsonb USING to_jsonb"),
    (array("text", 3), ERROR, "more than one dimension", "TYPE jsonb USING to_jsonb"),
    (array("bit", 1, 3), ERROR, "arrays of bits arrive as null", "TYPE text[]"),
    (array("bit", 0, 1), ERROR, "arrays of bits arrive as null", "TYPE text[]"),
    (column("name"), ERROR, "type name arrive as null", "TYPE text"),
    (array("time"), ERROR, "without their microseconds", "TYPE time(3)[]"),
    (array("time", 1, 6), ERROR, "without their microseconds", "TYPE time(3)[]"),
    (array("timestamp"), WARNING, "at a start of summer time", "TZ=UTC"),
]


@pytest.mark.parametrize(("facts", "severity", "words", "remedy"), FAULTY_TYPES, ids=str)
def test_a_type_whose_values_do_not_arrive_is_named(facts, severity, words, remedy):
    (found,) = by_type(facts)

    assert (found.severity, found.check, words in found.result) == (severity, "table public.items", True)
    assert found.result.endswith(": c it of public.items")
    assert remedy in found.remedy
    assert 'ALTER TABLE "public"."items" ALTER "c" TYPE' in found.remedy
    assert "extra={'column.exclude.list': 'public.items.c'}" in found.remedy


WELL = ["int4", "text", "uuid", "numeric", "date", "timestamptz", "timetz", "bytea", "bool", "jsonb", "inet"]


@each_row("facts", [*map(column, [*WELL, "timestamp", "time", "bit"]), *map(array, WELL)], ids=str)
def test_a_type_whose_values_arrive_has_no_finding(facts: ColumnFacts) -> None:
    assert by_type(facts) == []


@pytest.mark.parametrize("modifier", range(4))
def test_an_array_of_times_of_milliseconds_has_no_finding(modifier: int) -> None:
    assert by_type(array("time", 1, modifier)) == []


def test_columns_of_one_fault_are_one_finding() -> None:
    (found,) = by_type(ColumnFacts("a", "name", "name"), ColumnFacts("b", "label", "name"))

    assert found.result.endswith("a name, b label of public.items")
    assert "'public.items.a,public.items.b'" in found.remedy


BRACES = [
    column("jsonb", default="'{}'::jsonb"),
    column("json", default="'{}'::json"),
    column("jsonb", default="jsonb_build_object('a', 1)"),
    column("text", default="'{}'::text"),
    column("varchar", default="'{}'::character varying"),
    column("hstore", default="''::hstore"),
]
OTHER_DEFAULTS = [
    column("jsonb"),
    column("jsonb", default="'[]'::jsonb"),
    column("jsonb", default="'{\"a\": \"it''s\"}'::jsonb"),
    column("text", default="'a{}'::text"),
    column("text", default="''::text"),
    column("text", default="concat('{', '}')"),
    column("int4", is_array=True, dimensions=1, default="'{}'::integer[]"),
    column("int4", default="5"),
]


@pytest.mark.parametrize("facts", BRACES, ids=str)
def test_a_default_that_makes_an_avro_schema_unreadable_is_refused_in_avro_alone(facts: ColumnFacts) -> None:
    (found,) = by_type(facts, encoding=AVRO)

    assert (found.severity, found.result) == (
        ERROR,
        "Apicurio's registry does not return an Avro schema that has a DEFAULT '{}': c it of public.items",
    )
    assert "PlainJson() or JsonWithSchemas()" in found.remedy
    assert 'ALTER TABLE "public"."items" ALTER "c" DROP DEFAULT' in found.remedy
    assert by_type(facts) == by_type(facts, encoding=JsonWithSchemas()) == []


@pytest.mark.parametrize("facts", OTHER_DEFAULTS, ids=str)
def test_another_default_is_readable_in_avro(facts: ColumnFacts) -> None:
    assert by_type(facts, encoding=AVRO) == []


@each_row(
    ("extra", "is_read"),
    [
        ({"column.exclude.list": "public.items.c"}, False),
        ({"column.exclude.list": r"public\.orders\..*, PUBLIC\.items\.(c|d)"}, False),
        ({"column.include.list": "public.items.id"}, False),
        ({}, True),
        ({"column.exclude.list": "public.items.cc"}, True),
        ({"column.exclude.list": "items.c"}, True),
        ({"column.include.list": "public.items.(id|c)"}, True),
    ],
)
def test_a_column_is_looked_at_if_the_connector_reads_it(extra: dict[str, str], is_read: bool) -> None:
    found = captured_columns([column("name")], ITEMS, postgres(extra=extra).config())
    assert found == ((column("name"),) if is_read else ())


def by_value(facts: ColumnFacts, *, holds: bool) -> tuple[list[Finding], list[tuple[str, int]]]:
    asked: list[tuple[str, int]] = []
    found = list(of_values([facts], ITEMS, lambda condition, rows: (asked.append((condition, rows)), holds)[1]))
    return found, asked


ODD_VALUES = [
    (column("date"), 100_000, ["\"c\" < '0001-01-01'", "\"c\" BETWEEN '1582-10-05' AND '1582-10-14'"]),
    (array("text"), 1_000, ['array_ndims("c") > 1']),
    (array("int4", 0), 1_000, ['array_ndims("c") > 1']),
    (array("date"), 1_000, ['array_ndims("c") > 1', 'unnest("c") item', "item < '0001-01-01'"]),
    (array("timestamp"), 1_000, ['array_ndims("c") > 1', "item < '1582-10-15'"]),
    (array("timestamptz"), 1_000, ['array_ndims("c") > 1', "item < '0001-01-01+00'"]),
]


@pytest.mark.parametrize(("facts", "rows", "conditions"), ODD_VALUES, ids=str)
def test_a_value_that_arrives_as_another_is_looked_for_in_some_rows(facts, rows, conditions):
    found, asked = by_value(facts, holds=True)

    assert all(one.result.endswith(": c it of public.items") for one in found)
    assert len(found) == len(asked)
    assert {most for _, most in asked} == {rows}
    assert all(condition in " ".join(said for said, _ in asked) for condition in conditions)
    assert by_value(facts, holds=False)[0] == []


@pytest.mark.parametrize(
    "facts", [column("int4"), column("timestamp"), column("timestamptz"), array("int4", 2)], ids=str
)
def test_rows_are_not_read_for_a_type_whose_values_all_arrive_or_none(facts: ColumnFacts) -> None:
    assert by_value(facts, holds=True) == ([], [])


def test_a_date_of_another_calendar_is_a_warning_and_in_an_array_an_error() -> None:
    ((alone,), _), (in_array, _) = by_value(column("date"), holds=True), by_value(array("date"), holds=True)

    assert (alone.severity, {one.severity for one in in_array}) == (WARNING, {ERROR})
    assert 'UPDATE "public"."items" SET "c" = "c" WHERE isfinite("c")' in alone.remedy


def table(**changes: Any) -> list[Finding]:
    facts = {"kind": "r", "logged": True, "identity": "f", "key": ("id", "no"), "identity_columns": ()}
    rights = {"schema_usable": True, "readable": True, "row_security": False, "truncated_by": ()}
    columns = {"generated": (), "stored_generated": (), "formless": ()}
    return list(of_table(TableFacts(**facts | rights | columns | changes), ITEMS, postgres(), None))


@pytest.mark.parametrize("identity", ["d", "f", "i"])
def test_a_deferrable_primary_key_is_refused(identity: str) -> None:
    (found,) = table(deferrable_key="Items pkey", identity=identity, identity_columns=("id", "no"))

    assert found.severity is ERROR
    assert "the primary key (id, no) of public.items is deferrable" in found.result
    assert found.remedy == (
        'ALTER TABLE "public"."items" DROP CONSTRAINT "Items pkey", '
        'ADD CONSTRAINT "Items pkey" PRIMARY KEY ("id", "no")'
    )
    assert [one.severity for one in table(identity=identity, identity_columns=("id", "no"))] == [OK]


def test_a_partitioned_table_is_said_to_need_a_comparison_after_its_partitions_change() -> None:
    (_, found) = table(kind="p")

    assert (found.severity, found.check) == (OK, "partitions of public.items")
    assert "attached, detached, dropped or emptied by itself" in found.result
    assert "factfold cdc compare … --repair" in found.result


@pytest.mark.parametrize(("by_root", "severities"), [(True, []), (False, [ERROR])])
def test_a_partitioned_table_must_be_published_by_its_root(by_root: bool, severities: list[Severity]) -> None:
    names = frozenset({"public.items"})
    facts = TableFacts("p", True, "d", ("id",), (), True, True, False, (), (), (), ())
    publication = PublicationFacts(
        frozenset({"insert"}), by_root, False, False, True, names, filtered=frozenset(), partitions=frozenset()
    )

    found = list(of_membership(facts, ITEMS, publication, postgres()))

    assert [one.severity for one in found] == severities
    assert all("public.items" in one.result and "publish_via_partition_root" in one.remedy for one in found)


# ---- A moment that is captured keeps its offset, or its column is refused
