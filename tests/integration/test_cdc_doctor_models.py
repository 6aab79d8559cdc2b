"""The doctor holds the models of projection groups against the columns of the source, without a state."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from cdc import PostgresSource, Severity, diagnose
from factfold.cli.cdc import operate as command_line
from projections import ProjectionGroup, Table, view
from projections.stores.compared import captured_models
from tests.integration.conftest import Captured

OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR
ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, amount numeric(12,4))"
# What happens to the table after the model was written → what is found of it.
CHANGES = {
    "nothing": ((), OK, "it has the source's columns"),
    "a new column": (
        ("ALTER TABLE items ADD tier text",), OK, "column tier of the source is not declared in the model",
    ),
    "a column is dropped": (("ALTER TABLE items DROP name",), ERROR, "column name is not in the source"),
    "a column is renamed": (("ALTER TABLE items RENAME name TO title",), ERROR, "column name is not in the source"),
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
def shop(captured: Callable[[], Captured]) -> Captured:
    made = captured()
    made.run("CREATE TABLE others (id int PRIMARY KEY)")
    return made


@pytest.fixture
def source(shop: Captured) -> PostgresSource:
    shop.run("DROP TABLE IF EXISTS items", ITEMS)
    return shop.source(tables=("public.items", "public.others"))


@pytest.mark.parametrize(("changes", "severity", "words"), CHANGES.values(), ids=CHANGES)
def test_what_changed_since_a_model_was_written_is_found_in_the_words_of_a_comparison(
    shop: Captured, source: PostgresSource, changes: tuple[str, ...], severity: Severity, words: str
) -> None:
    shop.run(*changes)
    models = [*captured_models(group_over(source.topic("public.items"))), *captured_models(group_over("another"))]
    found = diagnose(source, source=shop.engine, models=models)
    told = [one for one in found if one.check == "model shop.items of public.items"]
    first = told[0]
    assert (first.severity, first.result) == (severity, words)
    assert bool(first.remedy) == (severity is not OK)
    assert {one.check for one in found if one.check.startswith("model")} == {"model shop.items of public.items"}


def test_the_command_takes_the_groups_and_fails_for_a_column_that_is_gone(
    shop: Captured, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run("ALTER TABLE items DROP name")
    declarations = type(sys)("shop_here")
    declarations.source, declarations.views = source, group_over(source.topic("public.items"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_here", declarations)
    url = shop.engine.url.render_as_string(hide_password=False)
    words = ["doctor", "shop_here:source", "--group", "shop_here:views", "--source-url", url, "--no-worker", "--json"]
    told = CliRunner().invoke(command_line.app, words, catch_exceptions=False)
    assert told.exit_code == 1
    (line,) = map(json.loads, told.stdout.splitlines())
    assert ["column name is not in the source"] == [
        one["result"] for one in line["findings"] if one["check"] == "model shop.items of public.items"
    ]
