"""What a projection process works with: a Spark session, the log it reads, and the database of its views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eventstore.closing import Closing
from eventstore.erasure import FollowedKeys
from eventstore.settings import Settings
from projections.log import RecordLog
from projections.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from projections.archive import ArchivableLog
    from projections.tablestore.sql import SqlTableStore


@dataclass(frozen=True)
class Environment(Closing):
    """One process's connections, handed to rebuild, runner and verify; ``small`` is for batches of few rows.

    ``keys`` open personal columns; they stay the caller's to close.

    Raises UnsupportedMaster where the executors of ``spark`` could not reach the table store.
    """

    spark: SparkSession
    small: SparkSession
    store: SqlTableStore
    log: RecordLog
    keys: FollowedKeys | None = None

    def __post_init__(self) -> None:
        self.store.check_master(str(self.spark.sparkContext.master))

    @staticmethod
    def open(
        settings: Settings,
        *,
        views_url: str,
        jars: Sequence[Path] = (),
        memory: str = "2g",
        keys: FollowedKeys | None = None,
        archive: str | Path | None = None,
        spark: SparkSettings | None = None,
    ) -> Environment:
        """Topics in Kafka, views in PostgreSQL: start Spark and prepare the views' database.

        ``views_url`` is SQLAlchemy's URL of it; ``jars`` are the Kafka and Avro jars of the versions file. What
        ``archive`` holds of the topics is read from there, which needs the jars of Delta Lake too; ArchiveUnusable.
        ``spark`` says where Spark runs, the environment's variables unless given.
        """
        from projections.spark.kafka_source import KafkaLog
        from projections.spark.session import open_session, small_batch_session
        from projections.tablestore.postgres import PostgresTableStore

        store = PostgresTableStore(views_url)
        store.prepare()
        chosen = spark or SparkSettings()
        session = open_session(jars, master=chosen.master, memory=memory, config=chosen.config)
        log: RecordLog = KafkaLog(settings)
        if archive is not None:
            log = _archived(session, KafkaLog(settings), archive)
        return Environment.of(session, small_batch_session(session), store, log, keys)

    @staticmethod
    def embedded(
        path: str | Path, *, jars: Sequence[Path] = (), memory: str = "1g", keys: FollowedKeys | None = None
    ) -> Environment:
        """Everything in one SQLite file, events, captured changes, state and views; no server is asked.

        Without the Avro jar in ``jars`` events are decoded in Python, some ten times slower.
        """
        from projections.spark.session import open_session, small_batch_session
        from projections.spark.store_source import StoreLog
        from projections.tablestore.sqlite import SqliteTableStore

        store = SqliteTableStore(path)
        store.prepare()
        spark = open_session(jars, memory=memory)
        return Environment.of(spark, small_batch_session(spark), store, StoreLog(store.path), keys)

    @staticmethod
    def of(
        spark: SparkSession, small: SparkSession, store: SqlTableStore, log: RecordLog, keys: FollowedKeys | None = None
    ) -> Environment:
        """An environment whose log, where there are keys, has the erasures among its topics."""
        from projections.erasures import LogWithErasures

        return Environment(spark, small, store, log if keys is None else LogWithErasures(log, keys), keys)

    def close(self) -> None:
        """Stop Spark and close the connections."""
        self.spark.stop()
        self.store.close()


def _archived(spark: SparkSession, log: ArchivableLog, path: str | Path) -> RecordLog:
    from projections.spark.archive.delta_archive import archived_log

    return archived_log(spark, log, path)
