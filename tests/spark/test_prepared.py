"""Prepared queries: planned once, run over whatever rows a batch has."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, open_runner, rebuild, sql_view, view
from projections.spark.live import prepared
from projections.spark.live.prepared import PreparedQueries
from projections.testing.memory_log import ChangeWriter

rates = Table.from_changelog(
    sa.Table("rates", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("rate", sa.Integer)),
    topic="bank.public.rates",
)


@view(key="id")
def current_rates(rates):
    return rates.select("id", "rate")


COUNTED = sql_view("counted_rates", "SELECT rate, count(*) AS n FROM rates GROUP BY rate", tables={"rates": rates})
GROUP = ProjectionGroup("rates", [current_rates, COUNTED])
ORDERS = pa.schema({"order_id": pa.string(), "customer_id": pa.int64(), "sku": pa.string()})


@pytest.fixture
def queries(small):
    with PreparedQueries(small) as opened:
        yield opened


def orders(*rows):
    return pa.Table.from_pylist([dict(zip(ORDERS.names, row, strict=True)) for row in rows], ORDERS)


def customers(**names):
    return pa.table({"customer_id": pa.array([int(k[1:]) for k in names], pa.int64()), "name": list(names.values())})


def articles(**titles):
    return pa.table({"sku": list(titles), "title": list(titles.values())})


def named(frames):
    return frames["orders"].join(frames["customers"], "customer_id").select("order_id", "name")


def detailed(frames):
    both = frames["orders"].join(frames["customers"], "customer_id").join(frames["articles"], "sku", "left")
    return both.select("order_id", "name", "title")


def shuffled(frames):
    """What a user may ask for: two partitions."""
    return detailed(frames).repartition(2, "order_id")


def rows_of(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_the_same_plan_runs_over_the_rows_of_each_batch(queries):
    built = []

    def build(frames):
        built.append(frames)
        return named(frames)

    for number, name in enumerate(["Ada", "Bob", "Cyd"]):
        inputs = {"orders": orders((f"o{number}", 1, "a"), (f"p{number}", 2, "a")), "customers": customers(c1=name)}
        assert rows_of(queries.run("named", build, inputs)) == [(f"o{number}", name)]
    assert len(built) == 1


def test_no_rows_are_rows_too(queries):
    assert rows_of(queries.run("named", named, {"orders": orders(), "customers": customers(c1="Ada")})) == []
    assert rows_of(queries.run("named", named, {"orders": orders(("o", 1, "a")), "customers": customers(c1="A")})) == [
        ("o", "A")
    ]


def run_twice(queries, build):
    for number in (1, 2):
        inputs = {
            "orders": orders((f"o{number}", number, "a")),
            "customers": customers(c1="Ada", c2="Bob"),
            "articles": articles(a=f"title {number}"),
        }
        found = rows_of(queries.run("detailed", build, inputs))
    return found


def test_a_plan_that_remembers_rows_gives_those_of_the_batch(queries):
    assert run_twice(queries, shuffled) == [("o2", "Bob", "title 2")]


def test_a_query_that_reads_elsewhere_is_built_for_each_batch(queries, spark, tmp_path):
    spark.createDataFrame([(1, "a")], "customer_id long, mark string").write.parquet(str(tmp_path / "marks"))
    built = []

    def build(frames):
        built.append(frames)
        marks = frames["orders"].sparkSession.read.parquet(str(tmp_path / "marks"))
        return frames["orders"].join(marks, "customer_id").select("order_id", "mark")

    for number in (1, 2):
        assert rows_of(queries.run("marked", build, {"orders": orders((f"o{number}", 1, "a"))})) == [
            (f"o{number}", "a")
        ]
    assert len(built) == 3  # one that is looked at, one a batch


def test_a_query_that_spark_takes_over_fixed_rows_only_is_built_for_each_batch(queries):
    """Rows of an inlet are others at another time, and a lateral join of such rows is refused."""

    def build(frames):
        frames["customers"].createOrReplaceTempView("lateral_customers")
        text = (
            "SELECT o.order_id, x.name FROM {orders} o LEFT JOIN LATERAL"
            " (SELECT c.name FROM lateral_customers c WHERE c.customer_id = o.customer_id) x"
        )
        return frames["orders"].sparkSession.sql(text, orders=frames["orders"])

    for number in (1, 2):
        inputs = {"orders": orders((f"o{number}", number, "a"), ("p", 3, "a")), "customers": customers(c1="A", c2="B")}
        found = queries.run("lateral", build, inputs).to_pylist()
        assert {row["order_id"]: row["name"] for row in found} == {f"o{number}": "AB"[number - 1], "p": None}


def test_schemas_learnt_mean_new_plans(queries):
    inputs = {"orders": orders(("o", 1, "a"))}
    assert rows_of(queries.run("q", lambda f: f["orders"].select("order_id"), inputs)) == [("o",)]
    queries.forget()
    assert rows_of(queries.run("q", lambda f: f["orders"].select("sku"), inputs)) == [("a",)]


def test_rows_that_are_too_many_for_json_take_the_way_of_a_plan_made_anew(queries, monkeypatch):
    inputs = {"orders": orders(("o", 1, "a")), "customers": customers(c1="Ada")}
    queries.run("named", named, inputs)
    monkeypatch.setattr(prepared, "MOST_BYTES", 10)
    monkeypatch.setattr(prepared.Inlet, "fill", None)
    assert rows_of(queries.run("named", named, inputs)) == [("o", "Ada")]


class Quiet(threading.Event):
    """Stops a runner in its first pause."""

    def wait(self, timeout=None):
        self.set()
        return True


def test_a_runner_that_had_a_quiet_moment_plans_nothing_in_its_first_batch(local, monkeypatch):
    planned = []

    def counted(queries, name, *given, _prepare=PreparedQueries._prepare):
        planned.append(name)
        return _prepare(queries, name, *given)

    monkeypatch.setattr(PreparedQueries, "_prepare", counted)
    changes = ChangeWriter(local.log)
    changes.put(rates, {"id": 1, "rate": 1})
    rebuild(local, GROUP)
    with open_runner(local, GROUP) as runner:
        runner.run(stop=Quiet())
        assert len(planned) == 4  # of a table, of two views, and of what is added up for one of them
        changes.put(rates, {"id": 2, "rate": 2})
        assert runner.run_once().upserts == 2
    assert len(planned) == 4
