"""Spark's own counts of what it read."""

from __future__ import annotations

import threading

from projections.spark.counting import RecordCounts


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
