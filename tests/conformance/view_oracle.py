"""What the views of a group must show: DuckDB's answer to their SQL, over the newest row of every key."""

from __future__ import annotations

import functools
import json

import duckdb
import pyarrow as pa
import sqlalchemy as sa

from tests.reference import newest_per_key


@functools.cache
def _database():
    database = duckdb.connect(config={"threads": 1})
    for macro in _AS_SPARK_HAS_THEM:
        database.execute(f"CREATE MACRO {macro}")
    return database


_AS_SPARK_HAS_THEM = (
    "collect_list(x) AS list(x) FILTER (WHERE x IS NOT NULL)",
    "sort_array(x) AS list_sort(x)",
    "struct(x, y) AS row(x, y)",
    "array_join(x, separator) AS coalesce(array_to_string(x, separator), '')",
)


def opened():
    """A connection with temporary tables of its own: a database of its own would take 13 ms, thousands of times."""
    return _database().cursor()


def expected(log, group, sql, tables):
    """The rows of every view; ``tables`` are by the names that the SQL calls them."""
    with opened() as engine:
        for name, table in tables.items():
            records = [(offset, key.decode(), value) for offset, (key, value) in enumerate(log.records(table.topic))]
            rows = list(newest_per_key(records).values())
            kinds = pa.schema([(c, t.arrow()) for c, t in table.columns.items()])
            engine.register(name, pa.Table.from_pylist(rows, kinds))
        for view in group.all_views:
            engine.execute(f"CREATE TEMP TABLE {view.name} AS {sql[view.name]}")
        return {view.name: in_order(engine.execute(f"SELECT * FROM {view.name}").fetchall()) for view in group.views}


def stored(store, group):
    """The rows that readers of every view see."""
    with store.transaction() as connection:
        names = [view.name for view in group.views]
        return {name: in_order(connection.execute(sa.text(f"SELECT * FROM {name}")).all()) for name in names}


def in_order(rows):
    """Rows in an order that nulls do not disturb."""
    return sorted((tuple(row) for row in rows), key=json.dumps)


def assert_views_are_right(store, log, group, sql, tables, *, after):
    """Every view shows what it must."""
    right, found = expected(log, group, sql, tables), stored(store, group)
    wrong = {name: (rows, right[name]) for name, rows in found.items() if rows != right[name]}
    assert not wrong, f"after {after}: {wrong}"
