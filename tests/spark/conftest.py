"""The sessions that the tests with Spark share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from projections import Environment
from projections.spark.events import decode
from projections.spark.session import small_batch_session
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def small(spark: SparkSession) -> SparkSession:
    """One session for plans and for small batches: to open one costs as much as to plan a view."""
    return small_batch_session(spark)


@pytest.fixture
def local(small: SparkSession, tmp_path: Path) -> Iterator[Environment]:
    """Views in an empty file, and a log in memory."""
    with closing(SqliteTableStore(tmp_path / "views.db")) as store:
        store.prepare()
        yield Environment(small, small, store, MemoryLog())


@pytest.fixture(params=["in the JVM", "in Python"])
def decoded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where events are decoded: in the JVM, or without Spark's Avro jar in Python."""
    if request.param == "in Python":
        monkeypatch.setattr(decode, "avro_in_the_jvm", lambda: False)
