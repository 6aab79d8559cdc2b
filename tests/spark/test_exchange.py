"""Rows that executors write into the table store, and what is raised where they are made."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from pyspark.sql import functions as F

from projections.errors import CodeFailed, SparkFailed, UnsupportedValue, passes
from projections.spark.exchange import DRIVER_ROWS, write
from projections.spark.failures import described
from projections.stores.embedded_rows import SqliteTarget
from tests.rows import each_row


@pytest.mark.parametrize("rows", [1, DRIVER_ROWS + 1])
def test_a_value_that_the_database_refuses_has_its_own_error_wherever_it_was_written_from(spark, tmp_path, rows):
    path = str(tmp_path / "views.db")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE measured (id integer, x double)")
    frame = spark.range(rows).withColumn("x", F.when(F.col("id") == rows - 1, float("nan")))
    with pytest.raises(UnsupportedValue, match="column 'x' has not a number"), described("view measured"):
        write(frame, SqliteTarget(path, "measured"), rows=rows)


@each_row(
    ("make", "kind"),
    [
        (lambda batches: [{}[batch] for batch in batches], CodeFailed),
        (lambda batches: [open("/nowhere/at/all") for _ in batches], SparkFailed),
    ],
    ids=["code", "the system"],
)
def test_what_code_raises_is_not_tried_again_and_what_the_system_says_is(spark, make, kind):
    with pytest.raises(SparkFailed) as caught, described("view measured"):
        spark.range(1).mapInArrow(make, "id bigint").collect()
    assert (type(caught.value), passes(caught.value)) == (kind, kind is SparkFailed)


def test_a_value_that_does_not_fit_is_not_tried_again(spark):
    with pytest.raises(CodeFailed, match="CAST_INVALID_INPUT") as caught, described("view measured"):
        spark.sql("SELECT cast(concat('a', id) AS int) FROM range(1)").collect()
    assert not passes(caught.value)
    assert "'a0'" not in str(caught.value)
    assert caught.value.place == "view measured, SQL line 1, position 8: cast(concat('a', id) AS int)"


def test_the_line_of_the_user_s_code_that_raised_is_told_and_not_what_it_said(spark):
    def measure(batches):
        raise LookupError(f"nobody is called Ann, of {len(list(batches))}")

    with pytest.raises(CodeFailed) as caught, described("view measured"):
        spark.range(1).mapInArrow(measure, "id bigint").collect()
    line = measure.__code__.co_firstlineno + 1
    assert (caught.value.message, caught.value.place) == ("LookupError", f"view measured, {__file__}:{line}: measure")


def test_the_expression_that_failed_is_told_where_lines_are_not_noted(spark):
    with pytest.raises(CodeFailed) as caught, described("view measured"):
        spark.range(1).select(F.concat(F.lit("Ann"), "id").cast("int")).collect()
    assert caught.value.place == 'view measured, "cast"'
    assert "Ann" not in str(caught.value)
