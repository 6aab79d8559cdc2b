"""`factfold preflight` on views: mistakes that are planted in a group, held against the generation that serves."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
from contextlib import ExitStack

import pytest

from factfold.cli.definitions import find_definitions
from factfold.console.parts import Places
from factfold.preflight.delivery import delivery
from factfold.preflight.findings import Checked, findings_of
from factfold.preflight.views import views
from projections.lifecycle.building import BuildState
from projections.spark.views.view_functions import view_columns
from projections.stores.sqlite import SqliteTableStore
from tests.unit.planted_services import importing

SERVICE = """
from eventstore import Aggregate, RecordedEvent, event, subscription
from projections import ProjectionGroup, Table, on, view


class Order(Aggregate):
    @event
    class Placed:
        sku: str
        quantity: int


placed = {column: on(Order.Placed).take(column) for column in ("sku", "quantity")}
orders = Table.from_events(Order, key="order_id", columns=placed)


@view(key="order_id", topic="order-lines")
def order_lines(orders):
    return orders.select("order_id", "sku", "quantity")


@view(key="order_id")
def large_orders(order_lines):
    return order_lines.where("quantity > 100").select("order_id", "sku")


@subscription("order-lines", group="mail", guarantee="at-least-once")
def send(event: RecordedEvent) -> None: ...


group = ProjectionGroup("shop", [order_lines, large_orders])
"""

# What is planted: replacements of the text, the level, and what the finding says.
PLANTED = {
    "view column dropped that a view reads": (
        {'orders.select("order_id", "sku", "quantity")': 'orders.select("order_id", "quantity")'}, "red",
        "it cannot be planned: there is no column 'sku'",
    ),
    "unplanned view": (
        {"quantity > 100": "rand() > 0.5"}, "red",
        "it cannot be planned: view 'large_orders' uses a random value",
    ),
    "view function that raises": (
        {'    return order_lines.where': '    raise ValueError("boom")\n    return order_lines.where'}, "red",
        "it cannot be planned: ValueError: boom (at ",
    ),
    "changed key": (
        {'key="order_id", topic="order-lines"': 'key="sku", by="sku", topic="order-lines"',
         'orders.select("order_id", "sku", "quantity")':
         'orders.groupBy("sku").agg({"order_id": "max", "quantity": "max"}).toDF("sku", "order_id", "quantity")',
         'key="order_id")\ndef large': 'key="sku")\ndef large',
         "large_orders])": "large_orders], version=2)"}, "yellow",
        "view order_lines changed: its key was order_id and is sku",
    ),
    "column of another type": (
        {'orders.select("order_id", "sku", "quantity")':
         'orders.selectExpr("order_id", "sku", "cast(quantity as double) quantity")',
         "large_orders])": "large_orders], version=2)"}, "yellow",
        "view order_lines changed: its column quantity was BIGINT and is DOUBLE. It reads",
    ),
    "definition changed under its version": (
        {"quantity > 100": "quantity > 200"}, "red",
        "its runner and its rebuild will stop: version 1 of it has another definition, view large_orders changed",
    ),
    "new version": (
        {"quantity > 100": "quantity > 200", "large_orders])": "large_orders], version=2)"}, "yellow",
        "version 1 became 2, view large_orders changed. It reads 500 records, about 0:00:05 and",
    ),
    "column that a topic's reader may need": (
        {'"order_id", "sku", "quantity")': '"order_id", "sku", "quantity").withColumnRenamed("quantity", "pieces")',
         "quantity > 100": "pieces > 100", "large_orders])": "large_orders], version=2)"}, "yellow",
        "column quantity disappears, and topic order-lines is read by subscription mail",
    ),
    "older release": ({"large_orders])": "large_orders], version=0)"}, "red", "its runner and its rebuild will stop"),
}  # fmt: skip


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    with importing(tmp_path_factory.mktemp("packages")) as made_of:
        yield lambda text: f"{made_of(text)}.service"


@pytest.fixture(scope="module")
def built(load, spark, tmp_path_factory):
    """A file in which version 1 serves, as a rebuild of 100 records in a second leaves it, 500 records ago."""
    path = tmp_path_factory.mktemp("views") / "views.db"
    group = importlib.import_module(load(SERVICE)).group
    store, columns = SqliteTableStore(path), view_columns(spark, group)
    store.prepare()
    run, layout = store.begin_generation(group, columns)
    names = {name: list(types) for name, types in columns.items()}
    state = BuildState({}, {"order": {0: 100}}, names, signatures=group.signatures(), seconds=1.0)
    store.index_generation(group, layout)
    store.record(run, built=state.to_json())
    store.serve(group, run, layout, {"order": {0: 500}})
    store.close()
    return path


def found(spark, target, path):
    with ExitStack() as opened:
        places = Places(views_url=f"sqlite:///{path}")
        return list(views(Checked(find_definitions([target]), places, opened, session=lambda _: spark)))


def test_nothing_is_found_where_nothing_changed_and_nothing_is_written(load, spark, built, tmp_path):
    file = shutil.copy(built, tmp_path / "views.db")
    before = file.read_bytes()
    assert {(one.level, one.cause) for one in found(spark, load(SERVICE), file)} == {
        ("green", "2 views can be planned"),
        ("green", "the generation that serves was built by this definition"),
    }
    assert file.read_bytes() == before


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_named(load, spark, built, mistake):
    replaced, level, words = PLANTED[mistake]
    text = SERVICE
    for old, new in replaced.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    findings = found(spark, load(text), built)
    assert [one for one in findings if one.level == level and words in one.cause], findings


def test_nothing_is_found_in_the_sample_app(spark):
    with ExitStack() as opened:
        checked = Checked(find_definitions(["sample_app"]), Places(), opened, session=lambda _: spark)
        findings = list(findings_of(checked, {"delivery": delivery, "views": views}))
    assert {one.level for one in findings} == {"green", "not checked"}, findings
    assert sum("views can be planned" in one.cause for one in findings) == 4


def test_a_group_without_a_generation_is_to_be_built(load, spark, tmp_path):
    SqliteTableStore(tmp_path / "empty.db").prepare()
    target = load(SERVICE)
    (unbuilt,) = [one for one in found(spark, target, tmp_path / "empty.db") if one.level == "yellow"]
    assert dataclasses.astuple(unbuilt)[2:4] == (
        "no generation of it serves",
        f"factfold projections rebuild {target}:group",
    )
