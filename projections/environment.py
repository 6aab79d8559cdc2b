"""What a projection process works with: a Spark session, the log it reads, and the database of its views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eventstore.closing import Closing
from eventstore.settings import Settings
from projections.log import RecordLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from projections.tablestore.sql import SqlTableStore


@dataclass(frozen=True)
class Environment(Closing):
    """One process's connections, handed to rebuild, runner and verify; ``small`` is for batches of few rows.

    Raises UnsupportedMaster where the executors of ``spark`` could not reach the table store.
    """

    spark: SparkSession
    small: SparkSession
    store: SqlTableStore
    log: RecordLog

    def __post_init__(self) -> None:
        self.store.check_master(str(self.spark.sparkContext.master))

    @staticmethod
    def open(settings: Settings, *, views_url: str, jars: Sequence[Path] = (), memory: str = "2g") -> Environment:
        """Topics in Kafka, views in PostgreSQL: start Spark and prepare the views' database.

        ``views_url`` is SQLAlchemy's URL of it; ``jars`` are the Kafka and Avro jars of the versions file.
        """
        from projections.spark.kafka_source import KafkaLog
        from projections.spark.session import open_session, small_batch_session
        from projections.tablestore.postgres import PostgresTableStore

        store = PostgresTableStore(views_url)
        store.prepare()
        spark = open_session(jars, memory=memory)
        return Environment(spark, small_batch_session(spark), store, KafkaLog(settings))

    @staticmethod
    def embedded(path: str | Path, *, jars: Sequence[Path] = (), memory: str = "1g") -> Environment:
        """Everything in one SQLite file, events, captured changes, state and views; no server is asked.

        Without the Avro jar in ``jars`` events are decoded in Python, some ten times slower.
        """
        from projections.spark.session import open_session, small_batch_session
        from projections.spark.store_source import StoreLog
        from projections.tablestore.sqlite import SqliteTableStore

        store = SqliteTableStore(path)
        store.prepare()
        spark = open_session(jars, memory=memory)
        return Environment(spark, small_batch_session(spark), store, StoreLog(store.path))

    def close(self) -> None:
        """Stop Spark and close the connections."""
        self.spark.stop()
        self.store.close()
