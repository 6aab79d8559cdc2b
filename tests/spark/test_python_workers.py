"""Spark's Python workers do not look through what our functions import after each task."""

from __future__ import annotations

import gc
import re
import sys
import types
from pathlib import Path

import pyarrow as pa
import pytest

from projections.spark import python_workers
from projections.spark.python_workers import settled

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
