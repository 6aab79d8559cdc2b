"""Rows that executors write into the table store."""

from __future__ import annotations

import sqlite3

import pytest
from pyspark.sql import functions as F

from projections.errors import UnsupportedValue
from projections.spark.exchange import DRIVER_ROWS, write
from projections.spark.failures import told_plainly
from projections.tablestore.embedded_rows import SqliteTarget


@pytest.mark.parametrize("rows", [1, DRIVER_ROWS + 1])
def test_a_value_that_the_database_refuses_has_its_own_error_wherever_it_was_written_from(spark, tmp_path, rows):
    path = str(tmp_path / "views.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE measured (id integer, x double)")
    frame = spark.range(rows).withColumn("x", F.when(F.col("id") == rows - 1, float("nan")))
    with pytest.raises(UnsupportedValue, match="column 'x' has not a number"), told_plainly("view measured"):
        write(frame, SqliteTarget(path, "measured"), rows=rows)
