"""A session for one purpose: not where the process has another."""

from __future__ import annotations

import logging
import threading

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as F

from projections.errors import ProjectionError
from projections.spark.session import own_session
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
