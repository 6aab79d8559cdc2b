"""Kept rows beside queries of other threads."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from projections.planning.plans import plan_in_jvm
from projections.spark.bulk import persisted

ROUNDS = 10


def decoded(spark):
    """A plan that decodes so many kinds of records that comparing it takes some milliseconds."""
    raw = spark.range(3).select(F.col("id").cast("string").cast("binary").alias("value"))
    return raw.select([decode(f"kind_{number}") for number in range(100)])


def decode(name):
    schema = json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "string"}]})
    return from_avro("value", schema, {"mode": "PERMISSIVE", "avroSchema": schema}).alias(name)


def compare_at_once(frame):
    """What two threads do with a kept plan: one derives a query of its own from it, the other looks for it."""
    plan, start = plan_in_jvm(frame), threading.Barrier(2)

    def compare(found):
        start.wait(timeout=30)
        found.canonicalized()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(compare, (plan.clone(), plan)))


def compare_many(frames):
    for frame in frames:
        compare_at_once(frame)


def test_a_kept_plan_can_be_looked_for_while_another_thread_derives_from_it(spark):
    for _ in range(ROUNDS):
        frame = persisted(decoded(spark))
        try:
            compare_at_once(frame)
        finally:
            frame.unpersist()


@pytest.mark.faults
def test_without_that_the_two_threads_meet_in_the_options_of_the_decoder(spark):
    """The planted fault. Which error the JVM raises depends on where the two threads meet."""
    met = r"DUPLICATED_MAP_KEY|requirement failed|FromAvro\.replacement"
    with pytest.raises((PySparkException, Py4JJavaError), match=met):
        compare_many(decoded(spark) for _ in range(40 * ROUNDS))
