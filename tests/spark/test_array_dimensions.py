"""Arrays of arrays are refused inside the JVM as they are in Python, and all that Python takes is taken."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from pyspark.sql import functions as F

from cdc.changes.column_types import reader_for
from cdc.changes.semantic_types import Form
from projections.declaring.captured import key_and_columns
from projections.spark.changes.semantic_types import FieldForm, of_text, typed
from tests.rows import each_row
from tests.unit.cdc.test_placeholders import SENT

VALUES: list[list[Any]] = [[], [None], [None, None]]


def column(number: int, kind: Any, dimensions: int | None) -> sa.Column[Any]:
    return sa.Column(f"c{number}", sa.ARRAY(kind, dimensions=dimensions))


def taken(reader: Any, value: list[Any]) -> bool:
    try:
        return isinstance(reader(value), list)
    except (ValueError, LookupError):
        return False


@each_row("dimensions", [None, 1])
def test_spark_takes_the_arrays_that_python_takes(small, dimensions):
    columns = [column(number, kind, dimensions) for number, (kind, _) in enumerate(SENT)]
    model = sa.Table("it", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), *columns)
    types = key_and_columns(model, full_identity=True)[1]
    nested = [[[inner, inner]] if inner and dimensions is None else [] for _, inner in SENT]
    tried = [[*VALUES, *more] for more in nested]
    schema = FieldForm.fixed(Form("array", items=Form("string")))

    asked = [
        (one, value, form)
        for one, values in zip(columns, tried, strict=True)
        for value in values
        for form in (None, schema)
    ]
    found = small.range(1).select(
        *(
            typed(F.lit(json.dumps(v)), types[c.name], form).isNotNull().alias(str(n))
            for n, (c, v, form) in enumerate(asked)
        )
    )

    (row,) = found.collect()
    assert [(str(c.type), v, row[n]) for n, (c, v, _) in enumerate(asked)] == [
        (str(c.type), v, taken(reader_for(c), v)) for c, v, _ in asked
    ]


def test_an_array_of_a_view_topic_may_hold_nulls_alone(small):
    model = sa.Table("it", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), column(0, sa.Integer, None))
    types = key_and_columns(model, full_identity=True)[1]

    assert small.range(1).select(of_text(F.lit("[null,null]"), types["c0"])).first()[0] == "[null,null]"
