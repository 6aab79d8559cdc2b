"""The session of a process, its workers, its counts, and the errors of its queries."""

from __future__ import annotations

import contextlib
import gc
import logging
import re
import sqlite3
import sys
import threading
import types
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as F

from projections.errors import CodeFailed, ProjectionError, SparkFailed, UnsupportedValue, passes
from projections.spark import python_workers
from projections.spark.bulk import RecordCounts
from projections.spark.exchange import DRIVER_ROWS, write
from projections.spark.failures import described
from projections.spark.python_workers import settled
from projections.spark.session import own_session
from projections.stores.arrow import SqliteTarget
from tests.errors import raises
from tests.rows import each_row


def test_a_session_of_its_own_is_refused_where_the_process_has_one_and_leaves_that_alone(spark):
    with raises(ProjectionError, code="session-in-use") as caught, own_session(master="local[3]", memory="1g"):
        pass
    assert "a process of its own" in caught.value.remedy
    assert spark.range(3).count() == 3


def test_it_is_refused_in_another_thread_too(spark):
    refused = []

    def attempt():
        try:
            with own_session(master="local[3]", memory="1g"):
                pass
        except ProjectionError as error:
            refused.append(error.code)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert refused == ["session-in-use"]
    assert spark.range(3).count() == 3


def test_hotspot_is_told_what_to_compile_and_when(spark):
    arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    wanted = {"-XX:-DontCompileHugeMethods", "-XX:ReservedCodeCacheSize=512m", "-XX:Tier4InvocationThreshold=50000"}
    assert wanted <= set(arguments)
    assert wanted <= set(spark.conf.get("spark.executor.extraJavaOptions").split())


@each_row(
    ("query", "logger"),
    [
        (lambda spark: spark.range(1).select(F.lit(1) / F.col("id")), "DataFrameQueryContextLogger"),
        (lambda spark: spark.sql("SELECT 1 / id FROM range(1)"), "SQLQueryContextLogger"),
    ],
)
def test_an_error_of_a_query_is_not_logged_with_a_java_trace_before_it_is_told(spark, query, logger):
    logged = []
    listening = logging.Handler()
    listening.emit = logged.append
    logging.getLogger(logger).addHandler(listening)
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO") as caught:
        query(spark).collect()
    str(caught.value)  # which is when it would be
    logging.getLogger(logger).removeHandler(listening)
    assert not logged


def test_columns_are_made_without_noting_where(spark):
    with pytest.raises(ArithmeticException) as caught:
        spark.range(1).select(F.lit(1) / F.col("id")).collect()
    assert __file__ not in str(caught.value)


# ---- spark's Python workers do not look through what our functions import after each task


SOURCES = Path(python_workers.__file__).parent


def test_what_is_imported_in_a_worker_is_left_out_of_collections(spark):
    def look(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"left_out": [gc.get_freeze_count()]})

    ((left_out,),) = spark.range(1).coalesce(1).mapInArrow(settled(look), "left_out bigint").collect()
    assert left_out > 10_000


@pytest.fixture
def freezes(monkeypatch):
    """Each call of gc.freeze, in a process that has settled nothing yet."""
    calls = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(len(sys.modules)))
    python_workers._settle.cache_clear()
    yield calls
    python_workers._settle.cache_clear()


def test_it_settles_once_and_again_for_what_is_imported_later(freezes, monkeypatch):
    same = settled(lambda batches: batches)
    assert list(same(iter([1]))) == list(same(iter([1]))) == [1]
    assert len(freezes) == 1  # what the first task left behind is garbage, to be collected
    monkeypatch.setitem(sys.modules, "imported_later", types.ModuleType("imported_later"))
    list(same(iter([])))
    assert len(freezes) == 2


def test_every_function_that_is_handed_to_spark_is_settled():
    handed = re.compile(r"\b(?:mapInArrow|mapInPandas|applyInArrow|arrow_udf|pandas_udf)\((\w+)\(?")
    found = [(path.name, what) for path in SOURCES.rglob("*.py") for what in handed.findall(path.read_text())]
    assert len(found) > 5
    assert {what for _, what in found} == {"settled"}, found


# ---- spark's own counts of what it read


def test_records_are_counted_by_the_work_that_read_them(spark):
    counts = RecordCounts(spark)

    def read(name, rows):
        with counts.counted(name):
            spark.range(0, rows, 1, 3).selectExpr("id % 7 AS k").groupBy("k").count().toArrow()

    threads = [threading.Thread(target=read, args=work) for work in (("a", 3_000), ("b", 500))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.range(100).count()
    assert (counts.read("a"), counts.read("b"), counts.read("c")) == (3_000, 500, 0)


# ---- rows that executors write into the table store, and what is raised where they are made


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
