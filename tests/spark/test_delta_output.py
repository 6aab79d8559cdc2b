"""Views in Delta tables: written behind batches, once after a crash, changed by a cut-over, filled again once lost."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, rollback, view
from projections.errors import InvalidDefinition, ProjectionError
from projections.spark.delta_tables import DeltaTables
from projections.spark.exchange import fetched, few_rows
from projections.spark.nesting import opened_up
from projections.spark.views.view_functions import view_columns
from projections.stores import outbox
from projections.stores.postgres import PostgresTableStore
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance.join_views import customers
from tests.errors import raises

ORDERS = sa.Table(
    "orders", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("buyer", sa.BigInteger),
    sa.Column("paid", sa.Numeric(12, 3)), sa.Column("share", sa.Double), sa.Column("open", sa.Boolean),
    sa.Column("day", sa.Date), sa.Column("at", sa.DateTime(timezone=True)), sa.Column("seal", sa.LargeBinary),
)  # fmt: skip
orders = Table.from_changelog(ORDERS, topic="shop.public.orders")
FULL = {"paid": "12.500", "share": 0.1, "open": True, "day": "2024-02-29Z", "at": "2024-01-02T03:04:05.678901Z"}


def group_of(lake, *, version=1, least=0, columns=()):
    @view(key="id", tables={"orders": orders, "customers": customers}, lake=str(lake))
    def bought(orders, customers):
        names = customers.select(F.col("id").alias("buyer"), "full_name")
        joined = orders.where(F.col("id") >= least).join(names, "buyer", "left")
        tags = F.struct(F.array("full_name", F.lit('a "quote"')).alias("names"), "paid").alias("tags")
        return joined.select("id", "full_name", "share", "open", "day", "at", "seal", tags, *columns)

    return ProjectionGroup("shop", [bought], version=version)


class Shop:
    """A group that is followed over a log in memory, and the rows of its view in both places."""

    def __init__(self, spark, small, folder, store):
        self.lake = folder / "lake" / "bought"
        self.store = store
        self.store.prepare()
        self.log = MemoryLog()
        self.environment = Environment(spark, small, self.store, self.log)
        self.changes = ChangeWriter(self.log)
        self.group = group_of(self.lake)

    def order(self, number, **values):
        self.changes.put(orders, {"id": number, "buyer": 1, **values})

    def follow(self):
        with open_runner(self.environment, self.group) as runner:
            runner.catch_up()

    def served(self):
        columns = view_columns(self.environment.spark, self.group)
        _, layout = self.store.serving(self.group, columns)
        place = layout.views["bought"]
        rows = few_rows(self.environment.small, fetched(self.store.target(place.view), place.columns))
        return opened_up(rows, place.columns).orderBy("id").collect()

    def in_the_lake(self):
        return self.environment.spark.read.format("delta").load(str(self.lake)).orderBy("id").collect()

    def is_equal(self):
        served = self.served()
        assert self.in_the_lake() == served
        return len(served)

    def versions(self):
        return len(list(self.lake.glob("_delta_log/0*.json")))

    def changed(self, since):
        feed = self.environment.spark.read.format("delta").option("readChangeFeed", "true")
        rows = feed.option("startingVersion", since).load(str(self.lake)).collect()
        return sorted((row["id"], row["_change_type"]) for row in rows if row["_change_type"] != "update_preimage")

    def waits(self):
        return self.store.waiting()["shop"][str(self.lake)]

    def build(self):
        self.changes.put(customers, {"id": 1, "full_name": "Ann"})
        self.order(1, **FULL, seal=b"\x00\xff")
        self.order(2, paid="-0.001", share=-0.0)
        self.order(3, buyer=9)
        rebuild(self.environment, self.group)


@pytest.fixture
def shop(spark, small, tmp_path):
    with closing(SqliteTableStore(tmp_path / "shop.db")) as store:
        shop = Shop(spark, small, tmp_path, store)
        shop.build()
        yield shop


def killed(*_, **__):
    raise KeyboardInterrupt


def test_a_delta_table_is_its_view_through_batches_a_crash_and_cut_overs(shop, monkeypatch):
    assert (shop.waits(), shop.versions()) == (4, 1)  # the first of them begins the table
    shop.follow()
    assert (shop.is_equal(), shop.waits(), shop.versions()) == (3, 0, 2)
    assert shop.in_the_lake()[0].tags.names == ["Ann", 'a "quote"']

    shop.changes.put(customers, {"id": 1, "full_name": "Åsa"})  # which changes two rows
    shop.changes.delete(orders, {"id": 3})
    shop.order(4)
    shop.follow()
    assert (shop.is_equal(), shop.versions()) == (3, 3)
    assert shop.changed(2) == [(1, "update_postimage"), (2, "update_postimage"), (3, "delete"), (4, "insert")]

    shop.changes.delete(orders, {"id": 4})
    shop.order(5)
    with monkeypatch.context() as patched:
        patched.setattr(outbox, "remove_upto", killed)  # the process dies between the write and its note
        with pytest.raises(KeyboardInterrupt):
            shop.follow()
    assert (shop.waits(), shop.versions()) == (2, 4)
    shop.follow()
    assert (shop.is_equal(), shop.waits(), shop.versions()) == (3, 0, 4)  # the table had it
    shop.order(6)
    with monkeypatch.context() as patched:
        patched.setattr(outbox, "remove_upto", killed)
        with pytest.raises(KeyboardInterrupt):
            shop.follow()
    first = shop.group
    shop.group = group_of(shop.lake, version=2, least=2)  # row 1 goes, the others stay as they are
    rebuild(shop.environment, shop.group)
    assert (shop.waits(), shop.versions()) == (2, 5)  # the row that the table has, and the one that goes
    shop.follow()
    assert (shop.is_equal(), shop.changed(5)) == (3, [(1, "delete")])

    shop.group = group_of(shop.lake, version=3, columns=["buyer"])
    rebuild(shop.environment, shop.group)
    shop.follow()
    assert (shop.is_equal(), {row.buyer for row in shop.in_the_lake()}) == (4, {1})
    shop.group = first
    rollback(shop.environment, shop.group)
    shop.order(8)
    shop.follow()
    assert (shop.is_equal(), "buyer" in shop.in_the_lake()[0]) == (5, False)


@pytest.mark.faults
def test_the_rows_of_postgresql_are_the_same_in_a_table(spark, small, tmp_path, database):
    with closing(PostgresTableStore(database())) as store:
        shop = Shop(spark, small, tmp_path, store)
        shop.build()
        shop.follow()
        assert shop.is_equal() == 3
        shop.changes.delete(orders, {"id": 3})
        shop.follow()
        assert shop.is_equal() == 2
        shop.group = group_of(shop.lake, version=2, columns=["buyer"])
        rebuild(shop.environment, shop.group)
        shop.follow()
        assert shop.is_equal() == 2


def test_a_table_that_was_lost_is_filled_by_the_next_cut_over_and_one_of_others_is_refused(shop):
    shop.follow()
    shutil.rmtree(shop.lake)
    shop.environment.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # as a process that starts later
    with raises(ProjectionError, code="lake-unusable", match="was deleted"):
        shop.follow()
    shop.group = group_of(shop.lake, version=2)
    rebuild(shop.environment, shop.group)
    shop.follow()
    assert shop.is_equal() == 3

    with pytest.raises(InvalidDefinition, match="holds the rows of view"):
        rebuild(shop.environment, ProjectionGroup("other", shop.group.views))


def test_a_writer_that_was_overtaken_writes_nothing(shop, monkeypatch):
    shop.follow()
    shop.order(9)
    rows_of, others = DeltaTables._rows, []

    def overtaken(self, change, records):
        if not others:
            others.append(True)
            DeltaTables(shop.environment.spark.newSession()).write(str(shop.lake), "shop", change)
        return rows_of(self, change, records)

    with open_runner(shop.environment, shop.group) as runner, monkeypatch.context() as patched:
        patched.setattr(DeltaTables, "_rows", overtaken)
        runner.catch_up()
    assert (shop.is_equal(), shop.versions()) == (4, 3)  # Delta leaves out the number that it has


def test_a_table_of_another_database_is_refused(shop, local):
    shop.follow()
    with raises(ProjectionError, code="lake-unusable", match="no view of this database wrote"):
        rebuild(replace(local, log=shop.log), shop.group)


def test_a_lost_race_is_told(shop, monkeypatch):
    monkeypatch.setattr(DeltaTables, "_commit", raised_by_delta)
    with raises(ProjectionError, code="run-superseded", match="another process writes the same Delta table"):
        shop.follow()


def raised_by_delta(*_):
    from pyspark.errors import PySparkException

    raise PySparkException("[DELTA_CONCURRENT_TRANSACTION] another commit came first")
