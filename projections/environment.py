"""What a projection process works with: a Spark session, the brokers, and the database of its views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eventstore.settings import Settings
from projections.tablestore.postgres import PostgresTableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Environment:
    """One process's connections, handed to rebuild, runner and verify; ``small`` is for batches of few rows."""

    spark: SparkSession
    small: SparkSession
    store: PostgresTableStore
    settings: Settings

    @staticmethod
    def open(settings: Settings, *, views_url: str, jars: Sequence[Path] = (), memory: str = "2g") -> Environment:
        """Start Spark and prepare the views' database; ``views_url`` is SQLAlchemy's URL of it."""
        from projections.spark.session import open_session, small_batch_session

        store = PostgresTableStore(views_url)
        store.prepare()
        spark = open_session(jars, memory=memory)
        return Environment(spark, small_batch_session(spark), store, settings)

    def close(self) -> None:
        """Stop Spark and close the connections."""
        self.spark.stop()
        self.store.close()
