"""Views, tables and columns that have words of SQL or names of our own working tables."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, sql_view, verify, view
from projections.declaring.columns import ColumnType
from projections.declaring.naming import IDENTIFIER
from projections.spark.session import small_batch_session
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.captured import captured
from tests.conformance.relational_batches import RelationalBatches
from tests.hostile_names import HOSTILE

pytestmark = pytest.mark.both_databases

goods = captured("goods", "amount")


@view(key="id")
def staged_goods(goods):
    """PostgreSQL's working tables are called so: where a batch's rows lie, and the keys whose rows are wanted."""
    return goods.where("amount > 1")


@view(key="id")
def wanted_goods(staged_goods):
    return staged_goods.selectExpr("id", "amount * 2 AS twice")


@view(by="amount")
def goods_by_amount(staged_goods):
    return staged_goods.groupBy("amount").count()


GROUP = ProjectionGroup("goods", [staged_goods, wanted_goods, goods_by_amount])


@pytest.fixture
def environment(spark, store):
    return Environment(spark, small_batch_session(spark), store, MemoryLog())


def shown(environment, name):
    with environment.store.looking() as connection:
        return sorted(tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {name}"))


def test_each_of_them_follows(environment):
    changes = ChangeWriter(environment.log)
    for number in range(4):
        changes.put(goods, {"id": number, "amount": number})
    rebuild(environment, GROUP)
    with open_runner(environment, GROUP) as runner:
        for change in ({"id": 0, "amount": 3}, {"id": 3, "amount": 1}):
            changes.put(goods, change)
            runner.catch_up()
        changes.delete(goods, {"id": 2})
        runner.catch_up()
    assert shown(environment, "staged_goods") == [(0, 3)]
    assert shown(environment, "wanted_goods") == [(0, 6)]
    assert shown(environment, "goods_by_amount") == [(3, 1)]
    assert all(verdict.equal for verdict in verify(environment, GROUP).values())


# ---- t12


NAMES = [name for name in HOSTILE if IDENTIFIER.fullmatch(name)]
QUERY = "SELECT id, {0}{1}{0} FROM {0}{1}{0}"  # the column of that name, of the table of that name


def table_called(name):
    model = sa.Table(name, sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column(name, sa.Text))
    return Table.from_changelog(model, topic=f"words.{name}")


TABLES = {name: table_called(name) for name in NAMES}


def tables_of(store):
    """Every table of the database that is not the group's own, with its columns."""
    with store.transaction() as connection:
        found = sa.inspect(connection)
        places = [(schema, name) for schema in found.get_schema_names() for name in found.get_table_names(schema)]
        return {
            (schema, name): [column["name"] for column in found.get_columns(name, schema)]
            for schema, name in places
            if "words_1" not in f"{schema}.{name}"
        }


def test_a_word_of_sql_names_a_table_its_column_and_a_view_of_it(store):
    views = [sql_view(name, QUERY.format("`", name), tables={name: TABLES[name]}, key="id") for name in NAMES]
    columns = {name: {"id": ColumnType("long"), name: ColumnType("string")} for name in NAMES}
    log, before = MemoryLog(), tables_of(store)
    sql = {name: QUERY.format('"', name) for name in NAMES}
    batches = RelationalBatches(store, log, ProjectionGroup("words", views), sql, columns)
    changes = ChangeWriter(log)
    for text in ("first", "second"):
        for name in NAMES:
            changes.put(TABLES[name], {"id": 1, name: f"{text} {name}"})
        batches.catch_up()
    assert len(NAMES) > 10
    with store.transaction() as connection:
        shown = {name: connection.execute(sa.text(f'SELECT * FROM "{name}"')).all() for name in NAMES}
        assert {*sa.inspect(connection).get_view_names()} == {*NAMES}
    assert shown == {name: [(1, f"second {name}")] for name in NAMES}
    assert tables_of(store) == before
