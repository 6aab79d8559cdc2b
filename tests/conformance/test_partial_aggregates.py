"""Group-by views kept by partial aggregates: what DuckDB makes of all rows, after every kind of change."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import Environment, ProjectionGroup, open_runner, rebuild, verify, view
from projections.declaring.columns import ROWS, ColumnType
from projections.errors import SparkFailed
from projections.planning.planner import plan
from projections.spark import exchange
from projections.spark.exchange import fetched
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores.view_changes import cut_changes, cut_slices, find_affected, has_marked
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance import view_oracle
from tests.conformance.aggregate_views import GROUP, SQL, WITHOUT_DOUBLES, extremes, sales, shops, sums
from tests.reference import newest_per_key

pytestmark = pytest.mark.postgres_in_faults


def sale(id, shop=1, kind="tea", pieces=2, grams=100, price="9.50", day="2024-02-29"):
    return {"id": id, "shop_id": shop, "kind": kind, "pieces": pieces, "grams": grams, "price": price, "day": day}


def first_rows(changes):
    for number, region in ((1, "north"), (2, "north"), (3, "south"), (4, None)):
        changes.put(shops, {"id": number, "region": region})
    for row in (
        sale(1), sale(2, kind="ink", pieces=7, price="0.01"), sale(3, shop=2, grams=None), sale(4, shop=None),
        sale(5, shop=3, kind=None, pieces=None, grams=None, price=None, day=None), sale(6, shop=9, pieces=1),
        sale(7, day="2024-03-01", price="-3.33"), sale(8, pieces=3, grams=2**50), sale(9, shop=2, kind="ink"),
    ):  # fmt: skip
        changes.put(sales, row)


# Two of them, one behind the other, are a batch: none is of a row that the one before it in the batch was of.
STEPS = {
    "a row is inserted": lambda w: w.put(sales, sale(20, pieces=4)),
    "a row is inserted into a new group": lambda w: w.put(sales, sale(21, shop=7)),
    "a value changes": lambda w: w.put(sales, sale(20, pieces=5, grams=7, price="1.11")),
    "a value that changes no sum comes": lambda w: w.put(sales, sale(22, pieces=0, grams=0, price="0.00")),
    "nothing changes but the position": lambda w: w.put(sales, sale(20, pieces=5, grams=7, price="1.11")),
    "the least value is replaced by a lesser one": lambda w: w.put(sales, sale(22, pieces=-1, day="1999-12-31")),
    "the least value goes": lambda w: w.delete(sales, {"id": 22}),
    "the greatest value becomes less": lambda w: w.put(sales, sale(1, price="0.50", kind="a")),
    "a value becomes null": lambda w: w.put(sales, sale(1, 1, None, None, None, None, None)),
    "the only value of a group comes": lambda w: w.put(sales, sale(5, shop=3, grams=5, price="5.00")),
    "the only value of a group becomes null": lambda w: w.put(sales, sale(5, 3, None, None, None, None, None)),
    "a row moves to another group": lambda w: w.put(sales, sale(2, shop=2, kind="ink", pieces=7, price="0.01")),
    "a row moves into no group": lambda w: w.put(sales, sale(2, shop=None, kind=None)),
    "the group of no value loses a row": lambda w: w.put(sales, sale(4, shop=1)),
    "the last row of a group moves": lambda w: w.put(sales, sale(21, shop=1, price="7.77")),
    "a row comes beside its like": lambda w: w.put(sales, sale(10, shop=9, pieces=1)),
    "its like is deleted": lambda w: w.delete(sales, {"id": 10}),
    "an old change comes late": lambda w: w.put(sales, sale(9, shop=1, grams=99), at=1_002),
    "the last row of a group is deleted": lambda w: w.delete(sales, {"id": 6}),
    "a filter lets a row go": lambda w: w.put(sales, sale(20, pieces=1)),
    "it is inserted again": lambda w: w.put(sales, sale(6, shop=9, price="1234567890.12")),
    "one row goes as another comes": lambda w: [w.delete(sales, {"id": 20}), w.put(sales, sale(23, pieces=8))],
    "two rows share the greatest, and one goes": lambda w: [
        w.put(sales, sale(24, kind="zinc")), w.put(sales, sale(25, kind="zinc")), w.delete(sales, {"id": 23})],
    "a change comes twice": lambda w: [
        w.put(sales, sale(9, shop=2, grams=1)), w.put(sales, sale(9, shop=2, grams=1), at=w.position)],
    "and the other": lambda w: w.delete(sales, {"id": 24}),
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


def expected(log, group):
    """Every view by its SQL, as the store's Arrow form has it."""
    with view_oracle.opened() as engine:
        engine.register("sales", arrow_rows(sales, log))
        engine.register("shops", arrow_rows(shops, log))
        engine.execute(f"CREATE TEMP VIEW sale_regions AS {SQL['sale_regions']}")
        return {view.name: engine.sql(SQL[view.name]).to_arrow_table() for view in group.views}


def in_order(table):
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)


def stored(store, view):
    """What the stable view shows: its columns, and of the generation's rows these."""
    with store.transaction() as connection:
        assert list(connection.execute(sa.text(f"SELECT * FROM {view.name}")).keys()) == list(view.columns)
    schema = pa.schema([(c, t.arrow()) for c, t in view.columns.items()])
    return fetched(store.target(view.view), view.columns).cast(schema)


class Aisle:
    """A group of views over a log in memory, in a store, with a writer of changes."""

    def __init__(self, spark, store, group=GROUP):
        self.environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        self.group, self.log = group, self.environment.log
        self.changes = ChangeWriter(self.log)
        first_rows(self.changes)
        rebuild(self.environment, group)
        self.layout = store.serving(group, view_columns(spark, group))[1]
        self.check(after="the rebuild")

    def live(self, batches):
        """Carry each step in a batch of its own into the views, and hold these against DuckDB's."""
        with open_runner(self.environment, self.group) as runner:
            for happening, step in batches.items():
                step(self.changes)
                runner.catch_up()
                self.check(after=happening)

    def check(self, *, after):
        """Every view has DuckDB's rows, of DuckDB's types."""
        right = expected(self.log, self.group)
        found = {name: stored(self.environment.store, self.layout.views[name]) for name in right}
        assert {n: t.schema.remove_metadata() for n, t in found.items()} == {n: t.schema for n, t in right.items()}
        wrong = {n: (in_order(t), in_order(right[n])) for n, t in found.items() if in_order(t) != in_order(right[n])}
        assert not wrong, f"after {after}: {wrong}"


def together(steps):
    """Several steps as one."""
    return {f"{next(iter(steps))} and what follows": lambda w: [step(w) for step in steps.values()]}


def in_batches_of(size):
    steps = list(STEPS.items())
    parts = [together(dict(steps[i : i + size])) for i in range(0, len(steps), size)]
    return {name: step for part in parts for name, step in part.items()}


def random_changes(cuts, count):
    """So many changes of few rows of few groups, some of which come late."""

    def change(writer):
        for _ in range(count):
            row = sale(
                cuts.randrange(12), cuts.choice([1, 2, None]), cuts.choice(["tea", "ink", None]),
                cuts.choice([None, 0, 1, 7]), cuts.choice([None, -5, 10**15]), cuts.choice([None, "0.01", "-7.77"]),
                cuts.choice([None, "2024-02-29", "0001-01-01"]),
            )  # fmt: skip
            late = writer.position - cuts.randrange(20) if cuts.random() < 0.1 else None
            if cuts.random() < 0.3:
                writer.delete(sales, {"id": row["id"]}, at=late)
            else:
                writer.put(sales, row, at=late)

    return change


def test_every_aggregate_is_right_after_every_change(store, spark):
    Aisle(spark, store).live(in_batches_of(2))


@pytest.mark.postgres_in_faults
def test_verify_recomputes_partial_aggregates_and_finds_one_that_drifted(store, spark):
    aisle, cuts = Aisle(spark, store, WITHOUT_DOUBLES), random.Random(5)
    aisle.live(in_batches_of(16) | {"random": random_changes(cuts, 30)})
    assert all(verdict.equal for verdict in verify(aisle.environment, aisle.group).values())
    rows = aisle.layout.views["extremes"].view
    with store.transaction() as connection:
        connection.execute(sa.update(rows).values(_count_0=rows.c["_count_0"] + 1).where(rows.c["shop_id"] == 2))
    drifted = verify(aisle.environment, aisle.group)
    assert [name for name, verdict in drifted.items() if not verdict.equal] == ["extremes"]
    assert drifted["extremes"].differing_keys == (2,)
    assert drifted["extremes"].digest == drifted["extremes"].recomputed_digest


def test_batches_that_executors_carry_are_right_too(store, spark, monkeypatch):
    aisle = Aisle(spark, store, ProjectionGroup("large", [extremes]))
    monkeypatch.setattr(exchange, "DRIVER_ROWS", 1)
    changes = {
        "the greatest value goes": lambda w: [w.delete(sales, {"id": i}) for i in (1, 8)],
        "other groups change": lambda w: [w.put(sales, sale(9 + shop, shop=shop, kind="zinc")) for shop in (2, 3, 9)],
    }
    aisle.live(together(changes))


HOT = 200_000
CHANGED = 10
HOT_COLUMNS = {
    "hot": {"shop_id": ColumnType("long"), "grams": ColumnType("long"), ROWS: ColumnType("long"),
            "_count_0": ColumnType("long"), "_sum_0": ColumnType("decimal", 38, 0)}
}  # fmt: skip


@view(by="shop_id", tables={"sales": sales})
def hot(sales):
    return sales.groupBy("shop_id").agg(F.sum("grams").alias("grams"))


def hot_group(store):
    """A generation whose only group has HOT rows, CHANGED of which a batch has staged a change of; without Spark."""
    group = ProjectionGroup("hot", [hot])
    run, layout = store.begin_generation(group, HOT_COLUMNS)
    tables, numbers = layout.tables["sales"], pa.array(range(HOT), pa.int64())
    one, zero = pa.repeat(pa.scalar(1, pa.int64()), HOT), pa.repeat(pa.scalar(0, pa.int64()), HOT)
    rows = {"id": numbers, "shop_id": one, "grams": numbers, "_epoch": zero, "_pos": one, "_offset": numbers}
    state = pa.table({**rows, "_deleted": pa.repeat(False, HOT)})
    store.target(tables.state).append(state)
    total = [Decimal(HOT * (HOT - 1) // 2)]
    kept = {"shop_id": [1], "grams": [int(total[0])], ROWS: [HOT], "_count_0": [HOT], "_sum_0": total}
    store.target(layout.views["hot"].view).append(
        pa.table({c: pa.array(kept[c], t.arrow()) for c, t in HOT_COLUMNS["hot"].items()})
    )
    store.index_generation(group, layout)
    changed = state.slice(0, CHANGED).set_column(4, "_pos", pa.repeat(pa.scalar(2, pa.int64()), CHANGED))
    store.target(tables.staged).append(changed)
    return run, layout


@pytest.mark.both_databases
def test_a_hot_group_costs_its_changes(store):
    run, layout = hot_group(store)
    group, read = layout.views["hot"], []
    walk = plan(group.definition)
    with store.staging(run) as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda *given: read.append(given[2:4]))
        assert find_affected(connection, layout, group, walk) == 1
        assert cut_changes(connection, group, group.partials) == {"before": CHANGED, "after": CHANGED, "groups": 1}
        assert not has_marked(connection, group)
        assert not [line for statement in list(read) for line in whole_reads(connection, group, *statement)]
        connection.execute(sa.insert(group.result).values(shop_id=1, _whole=True))
        assert has_marked(connection, group)
        assert cut_slices(connection, group, walk) == {"sales": HOT}


def whole_reads(connection, group, statement, bound):
    """The lines of a statement's plan that read all of the state."""
    asked = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
    lines = [str(row[-1]).lstrip(" ->") for row in connection.exec_driver_sql(f"{asked} {statement}", bound)]
    return [x for x in lines if x.startswith(("SCAN", "Seq Scan")) and group.root.state.name in x]


def test_a_sum_beyond_its_type_stops_a_batch_as_it_stops_a_rebuild(store, spark):
    aisle = Aisle(spark, store, ProjectionGroup("full", [sums]))
    with pytest.raises(SparkFailed, match="CAST_OVERFLOW"):
        aisle.live({"too much": lambda w: [w.put(sales, sale(i, grams=2**63 - 1)) for i in (1, 2)]})
    with pytest.raises(SparkFailed, match="CAST_OVERFLOW"):
        rebuild(aisle.environment, aisle.group)
