"""How `factfold cdc compare` shows what it found: keys and names of columns, and no value of a row."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from cdc import PostgresSource
from cdc.comparing.report import TableComparison
from cdc.errors import InvalidConnector
from eventstore.errors import DeclarationError
from factfold.cli.cdc import compare as command_line
from factfold.cli.cdc.compare import as_plain, lines_of
from tests.commands import factfold

FOUND = TableComparison(
    "public.items",
    "shop.items",
    ("shop", "id"),
    source_rows=1_000,
    state_rows=999,
    chunks=1,
    missing=(("a", "1"), ("a", "2"), ("a", "3")),
    differing=(("b", "1"),),
    differing_columns={("b", "1"): ("name", "price")},
    faults=("column old is not in the source; remove it from the model",),
    notes=("column new of the source is not declared in the model",),
    not_compared={"tags": "hstore in the source, map in the state"},
    repaired=2,
    unrepaired="its records are Avro",
)


def test_each_kind_of_difference_is_counted_and_some_keys_are_named() -> None:
    table, row, *details = lines_of([FOUND], show=2)
    assert table.split() == "table state rows in state missing extra differing changing result".split()
    assert row.split() == [
        "public.items",
        "shop.items",
        "1,000",
        "999",
        "3",
        "0",
        "1",
        "0",
        "DIFFERS,",
        "2",
        "repaired",
    ]
    assert [line.removeprefix("  public.items: ") for line in details] == [
        "column old is not in the source; remove it from the model",
        "shop=a, id=1 in the source alone",
        "shop=a, id=2 in the source alone",
        "1 more in the source alone",
        "shop=b, id=1 with other values: name, price",
        "not repaired: its records are Avro",
        "column tags is not compared: hstore in the source, map in the state",
        "note: column new of the source is not declared in the model",
    ]


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (TableComparison("public.a", "shop.a", ("id",)), "equal"),
        (TableComparison("public.a", "", (), notes=("not compared",)), "not compared"),
        (TableComparison("public.a", "shop.a", ("id",), changing=(("1",),)), "DIFFERS"),
        (TableComparison("public.a", "shop.a", ("id",), faults=("a column is not in the source",)), "DIFFERS"),
    ],
)
def test_only_what_was_compared_and_is_the_same_is_equal(found: TableComparison, result: str) -> None:
    assert list(lines_of([found], show=1))[1].endswith(result)


def test_json_has_all_counts_and_the_keys_that_are_shown() -> None:
    told = json.loads(json.dumps(as_plain(FOUND, show=1)))
    assert (told["missing"], told["extra"], told["equal"], told["repaired"]) == (3, 0, False, 2)
    assert told["keys"] == {
        "missing": [{"shop": "a", "id": "1"}],
        "extra": [],
        "differing": [{"shop": "b", "id": "1"}],
        "changing": [],
    }
    assert told["differing_columns"] == [{"key": {"shop": "b", "id": "1"}, "columns": ["name", "price"]}]


SHOP = PostgresSource(
    name="shop", host="db", database="shop", user="shop_cdc", password="${file:/secrets/shop.properties:password}",
    topic_prefix="shop", tables=("public.customers",),
)  # fmt: skip


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> None:
    declarations = type(sys)("shop_here")
    declarations.sources = [SHOP]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_here", declarations)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")


def chosen(*tables: str, database: str = "shop") -> Any:
    engine = command_line.database(f"postgresql+psycopg://nobody@db/{database}")
    with engine as opened:
        return command_line._sources([SHOP], "shop_here:sources", opened, list(tables) or None)


@pytest.mark.usefixtures("sources")
def test_the_sources_of_the_given_database_are_compared_with_their_tables() -> None:
    assert chosen() == [(SHOP, ["public.customers"])]
    with pytest.raises(InvalidConnector, match=r"does not capture table 'public\.other'\n.*public\.customers"):
        chosen("public.other")


@pytest.mark.usefixtures("sources")
def test_a_database_that_no_source_reads_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no PostgresSource that reads the database another"):
        chosen(database="another")


@pytest.mark.usefixtures("sources")
def test_a_group_is_asked_for() -> None:
    words = ["compare", "shop_here:sources", "--source-url", "sqlite://", "--views-url", "sqlite://"]
    ran = factfold("cdc", *words)
    assert (ran.exit_code, "--group" in ran.output) == (2, True)


def test_groups_without_a_state_of_any_table_are_refused() -> None:
    none = TableComparison("public.items", "", (), notes=("not compared",))
    with pytest.raises(DeclarationError, match=r"no state of shop:views is made from public\.items"):
        command_line._require_compared([none], ["shop:views"])
