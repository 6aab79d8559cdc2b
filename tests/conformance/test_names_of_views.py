"""Views, tables and columns that have words of SQL or names of our own working tables."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, sql_view
from projections.declaring.columns import ColumnType
from projections.declaring.naming import IDENTIFIER
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.captured import captured
from tests.conformance import view_oracle
from tests.conformance.relational_batches import RelationalBatches
from tests.hostile_names import HOSTILE

pytestmark = pytest.mark.both_databases

goods = captured("goods", "amount")


SQL = {  # PostgreSQL's working tables are called so: where a batch's rows lie, and the keys whose rows are wanted
    "staged_goods": "SELECT id, amount FROM goods WHERE amount > 1",
    "wanted_goods": "SELECT id, amount * 2 AS twice FROM staged_goods",
    "goods_by_amount": "SELECT amount, count(*) AS count FROM staged_goods GROUP BY amount",
}
LONG = ColumnType("long")
KEYS = {"goods_by_amount": "amount"}
COLUMNS = {
    "staged_goods": {"id": LONG, "amount": LONG},
    "wanted_goods": {"id": LONG, "twice": LONG},
    "goods_by_amount": {"amount": LONG, "count": LONG},
}


def test_each_of_them_follows(store):
    named = {"goods": goods}
    for name, text in SQL.items():
        named[name] = sql_view(name, text, tables=named, key=KEYS.get(name, "id"), by=KEYS.get(name))
    group = ProjectionGroup("goods", [named[name] for name in SQL])
    log = MemoryLog()
    batches, changes = RelationalBatches(store, log, group, SQL, COLUMNS), ChangeWriter(log)
    for rows in ([(number, number) for number in range(4)], [(0, 3)], [(3, 1)]):
        for id, amount in rows:
            changes.put(goods, {"id": id, "amount": amount})
        batches.catch_up()
    changes.delete(goods, {"id": 2})
    batches.catch_up()
    shown = view_oracle.stored(store, group)
    assert shown == {"staged_goods": [(0, 3)], "wanted_goods": [(0, 6)], "goods_by_amount": [(3, 1)]}


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
