"""Fixtures for pytest, there wherever Factfold is installed: a Spark session, and trials of projection groups.

def test_orders_show_their_customers(view_trial):
    trial = view_trial(ProjectionGroup("shop", [order_details]))
    trial.put(customers, {"id": 7, "name": "Ann"})
    trial.check()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Imported where they are used: every run of pytest loads this module, whether its tests are ours or not.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from projections.declaring.group import ProjectionGroup
    from projections.testing.trial import ViewTrial


@pytest.fixture(scope="session")
def view_spark() -> Iterator[SparkSession]:
    """The one Spark session of the run, started by the first test that asks for it."""
    from projections.spark.session import open_session  # pytest loads this plug-in in every run

    session = open_session(memory="1g")
    yield session
    session.stop()


@pytest.fixture
def view_trial(view_spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[ProjectionGroup], ViewTrial]]:
    """A function that puts a group on trial; its views go with the test."""
    from projections.testing.trial import ViewTrial  # pytest loads this plug-in in every run

    with ExitStack() as opened:
        yield lambda group: opened.enter_context(ViewTrial(view_spark, group, tmp_path))
