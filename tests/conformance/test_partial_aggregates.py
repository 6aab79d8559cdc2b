"""Group-by views kept by partial aggregates: what DuckDB makes of all rows, after every kind of change."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
import sqlalchemy as sa

from projections import Environment, open_runner, rebuild
from projections.reference import newest_per_key
from projections.spark.session import small_batch_session
from projections.spark.view_functions import view_columns
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.aggregate_views import GROUP, SQL, sales, shops


def sale(id, shop=1, kind="tea", pieces=2, grams=100, price="9.50", day="2024-02-29"):
    return {"id": id, "shop_id": shop, "kind": kind, "pieces": pieces, "grams": grams, "price": price, "day": day}


def first_rows(changes):
    for number, region in ((1, "north"), (2, "north"), (3, "south"), (4, None)):
        changes.put(shops, {"id": number, "region": region})
    for row in (
        sale(1), sale(2, kind="ink", pieces=7, price="0.01"), sale(3, shop=2, grams=None), sale(4, shop=None),
        sale(5, shop=3, kind=None, pieces=None, grams=None, price=None, day=None), sale(6, shop=9, pieces=1),
        sale(7, day="2024-03-01", price="-3.33"), sale(8, pieces=3, grams=2**53), sale(9, shop=2, kind="ink"),
    ):  # fmt: skip
        changes.put(sales, row)


STEPS = {
    "a row is inserted": lambda w: w.put(sales, sale(20, pieces=4)),
    "a row is inserted into a new group": lambda w: w.put(sales, sale(21, shop=7)),
    "a value changes": lambda w: w.put(sales, sale(20, pieces=5, grams=7, price="1.11")),
    "nothing changes but the position": lambda w: w.put(sales, sale(20, pieces=5, grams=7, price="1.11")),
    "a value that changes no sum comes": lambda w: w.put(sales, sale(22, pieces=0, grams=0, price="0.00")),
    "the least value is replaced by a lesser one": lambda w: w.put(sales, sale(22, pieces=-1, day="1999-12-31")),
    "the least value goes": lambda w: w.delete(sales, {"id": 22}),
    "the greatest value becomes less": lambda w: w.put(sales, sale(1, price="0.50", kind="a")),
    "a value becomes null": lambda w: w.put(sales, sale(1, pieces=None, grams=None, price=None, day=None, kind=None)),
    "the only value of a group comes": lambda w: w.put(sales, sale(5, shop=3, grams=5, price="5.00")),
    "the only value of a group becomes null": lambda w: w.put(sales, sale(5, 3, None, None, None, None, None)),
    "a row moves to another group": lambda w: w.put(sales, sale(2, shop=2, kind="ink", pieces=7, price="0.01")),
    "a row moves into no group": lambda w: w.put(sales, sale(2, shop=None, kind=None)),
    "the group of no value loses a row": lambda w: w.put(sales, sale(4, shop=1)),
    "the last row of a group moves": lambda w: w.put(sales, sale(21, shop=1, price="7.77")),
    "the last row of a group is deleted": lambda w: w.delete(sales, {"id": 6}),
    "it is inserted again": lambda w: w.put(sales, sale(6, shop=9, price="1234567890.12")),
    "a filter lets a row go": lambda w: w.put(sales, sale(20, pieces=1)),
    "one row goes as another comes": lambda w: [w.delete(sales, {"id": 20}), w.put(sales, sale(23, pieces=8))],
    "two rows share the greatest, and one goes": lambda w: [
        w.put(sales, sale(24, kind="zinc")), w.put(sales, sale(25, kind="zinc")), w.delete(sales, {"id": 23})],
    "and the other": lambda w: w.delete(sales, {"id": 24}),
    "a change comes twice": lambda w: [w.put(sales, sale(9, shop=2, grams=1)), w.put(sales, sale(9, 2, grams=1),
                                                                                       at=w.position)],
    "an old change comes late": lambda w: w.put(sales, sale(9, shop=1, grams=99), at=1_002),
    "an old change of a deleted row comes late": lambda w: w.put(sales, sale(20, grams=99), at=1_003),
    "a row comes, changes and goes in one batch": lambda w: [
        w.put(sales, sale(30)), w.put(sales, sale(30, grams=3)), w.delete(sales, {"id": 30})],
    "a parent moves all its rows": lambda w: w.put(shops, {"id": 1, "region": "south"}),
    "a parent moves them into no group": lambda w: w.put(shops, {"id": 1, "region": None}),
    "a parent is deleted": lambda w: w.delete(shops, {"id": 2}),
    "a parent comes": lambda w: [w.put(shops, {"id": 9, "region": "east"}), w.put(shops, {"id": 2, "region": "east"})],
    "all rows of a shop go": lambda w: [w.delete(sales, {"id": i}) for i in (1, 4, 7, 8, 21, 25)],
}  # fmt: skip


def arrow_rows(table, log):
    """The newest row of every key, typed; decimals and days come as text."""
    records = [(offset, key.decode(), value) for offset, (key, value) in enumerate(log.records(table.topic))]
    rows = list(newest_per_key(records).values())
    text = {c: pa.string() if t.kind in ("decimal", "date") else t.arrow() for c, t in table.columns.items()}
    arrays = {c: pa.array([row[c] for row in rows], text[c]).cast(t.arrow()) for c, t in table.columns.items()}
    return pa.table(arrays)


def expected(log):
    """Every view by its SQL, as the store's Arrow form has it."""
    with duckdb.connect() as engine:
        engine.register("sales", arrow_rows(sales, log))
        engine.register("shops", arrow_rows(shops, log))
        engine.execute(f"CREATE VIEW sale_regions AS {SQL['sale_regions']}")
        return {view.name: engine.sql(SQL[view.name]).to_arrow_table() for view in GROUP.views}


def in_order(table):
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)


def stored(store, layout, name):
    """What the stable view shows, read as the generation's rows are."""
    view = layout.views[name]
    with store.transaction() as connection:
        assert list(connection.execute(sa.text(f"SELECT * FROM {name}")).keys()) == list(view.columns)
    found = pa.Table.from_batches(store.target(view.view).fetch(view.columns))
    typed = pa.schema([(c, t.arrow()) for c, t in view.columns.items()])
    return found.cast(typed)


def assert_views_are_right(store, log, layout, *, after):
    right = expected(log)
    found = {name: stored(store, layout, name) for name in right}
    wrong = {
        name: (in_order(found[name]), in_order(table.select(found[name].column_names)))
        for name, table in right.items()
        if in_order(found[name]) != in_order(table.select(found[name].column_names))
    }
    assert not wrong, f"after {after}: {wrong}"


@pytest.fixture(scope="module")
def columns(spark):
    return view_columns(spark, GROUP)


def test_every_aggregate_is_right_after_every_change(store, spark, columns):
    environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
    log, changes = environment.log, ChangeWriter(environment.log)
    first_rows(changes)
    rebuild(environment, GROUP)
    _, layout = store.serving(GROUP, columns)
    assert_views_are_right(store, log, layout, after="the rebuild")
    with open_runner(environment, GROUP) as runner:
        for happening, step in STEPS.items():
            step(changes)
            runner.catch_up()
            assert_views_are_right(store, log, layout, after=happening)
