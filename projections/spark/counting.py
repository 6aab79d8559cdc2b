"""How many records Spark has read so far, by name of the work: from its own counts of a stage's input.

A task reports every ten seconds and when it ends. The counts are behind, and never ahead.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RecordCounts:
    """The records that the jobs of some threads have read from a log."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._own = uuid.uuid4().hex

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        """Count what the jobs that this thread starts inside the block read."""
        self._context.setJobGroup(self._group(name), f"factfold: {name}")
        try:
            yield
        finally:
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None takes it away

    def read(self, name: str) -> int:
        """The records read so far under a name."""
        tracker = self._context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group(name)))
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        return sum(self._input_of(stage) for stage in stages)

    def _input_of(self, stage: int) -> int:
        from py4j.protocol import Py4JJavaError

        try:
            return int(self._context._jsc.sc().statusStore().lastStageAttempt(stage).inputRecords())  # noqa: SLF001
        except Py4JJavaError:  # Spark forgets old stages, and knows a new one only some milliseconds later
            return 0

    def _group(self, name: str) -> str:
        return f"factfold.{self._own}.{name}"
