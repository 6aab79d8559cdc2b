"""A nested column is JSON within a view topic's records, and over a cut-over; on both databases, without Spark."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from projections.declaring.columns import ColumnType
from projections.stores.handing_over import Rows

pytestmark = pytest.mark.postgres_in_faults

COLUMNS = {
    "id": ColumnType("long"),
    "name": ColumnType("string"),
    "doc": ColumnType("string", shape="struct<a: array<string>, d: decimal(8,2)>"),
}
DOC = '{"a":["ü","q\\"\\\\"],"d":"1.50"}'


def values(store):
    """The records' values as a batch has them, and as a later generation finds them told."""
    view = sa.Table("v", sa.MetaData(), *(sa.Column(c, sa.BigInteger if c == "id" else sa.Text) for c in COLUMNS))
    rows = Rows(view, ("id",), COLUMNS)
    told = Rows.of_json(json.loads(json.dumps(rows.to_json())))
    with store.transaction() as connection:
        view.create(connection)
        connection.execute(view.insert(), [{"id": 1, "name": DOC, "doc": DOC}, {"id": 2, "name": None, "doc": None}])
        return [
            list(connection.scalars(sa.select(r.values(connection)).select_from(r.table).order_by(r.table.c.id)))
            for r in (rows, told)
        ]


def assert_nested_in_both(store):
    now, told = values(store)
    assert now == told == [f'{{"id":1,"name":{json.dumps(DOC, ensure_ascii=False)},"doc":{DOC}}}',
                           '{"id":2,"name":null,"doc":null}']  # fmt: skip


@pytest.mark.both_databases
def test_a_nested_column_is_json_within_the_record(store):
    assert_nested_in_both(store)
