"""The sessions that the tests with Spark share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projections.spark.session import small_batch_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def small(spark: SparkSession) -> SparkSession:
    """One session for plans and for small batches: to open one costs as much as to plan a view."""
    return small_batch_session(spark)
