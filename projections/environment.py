"""What a projection process works with: a Spark session, the log it reads, and the database of its views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventstore.closing import Closing
from eventstore.erasure import FollowedKeys
from eventstore.settings import Settings
from projections.logs.port import RecordLog
from projections.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from projections.logs.archive import ArchivableLog
    from projections.spark.keeping import Keeper
    from projections.tablestore.port import TableStore


@dataclass(frozen=True)
class Environment(Closing):
    """One process's connections, handed to rebuild, runner and verify. ``small`` is for batches of few rows.

    ``keys`` open personal columns. They stay the caller's to close.

    Raises UnsupportedMaster if the executors of ``spark`` could not reach the table store.
    """

    spark: SparkSession
    small: SparkSession
    store: TableStore[Any]
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
        """Topics in Kafka, views in PostgreSQL or Delta Lake: start Spark and prepare where the views are stored.

        ``views_url`` is SQLAlchemy's URL of the database, or `delta:` and a path or Hadoop URI. ``jars`` are the Kafka
        and Avro jars of the versions file. What ``archive`` holds of the topics is read from there. Both this and Delta
        tables need the jars of Delta Lake too. ``spark`` says where Spark runs, the environment's variables unless
        given. Raises ArchiveUnusable or TableStoreUnavailable.
        """
        from projections.spark.lakehouse.store import DeltaTableStore
        from projections.spark.reading.kafka_source import KafkaLog
        from projections.spark.session import open_session, small_batch_session
        from projections.tablestore.opening import delta_root

        # A database is asked before Spark starts, which takes seconds; Delta Lake is asked by Spark.
        kept = None if delta_root(views_url) else _prepared(views_url)
        chosen = spark or SparkSettings()
        session = open_session(jars, master=chosen.master, memory=memory, config=chosen.config)
        store = kept or DeltaTableStore(session, views_url)
        log: RecordLog = KafkaLog(settings)
        if archive is not None:
            log = _archived(session, KafkaLog(settings), archive)
        return Environment.of(session, small_batch_session(session), store, log, keys)

    @staticmethod
    def embedded(
        path: str | Path, *, jars: Sequence[Path] = (), memory: str = "1g", keys: FollowedKeys | None = None
    ) -> Environment:
        """Everything in one SQLite file, events, captured changes, state and views. No server is asked.

        Without the Avro jar in ``jars`` events are decoded in Python, some ten times slower.
        """
        from projections.spark.reading.store_source import StoreLog
        from projections.spark.session import open_session, small_batch_session
        from projections.tablestore.sqlite import SqliteTableStore

        store = SqliteTableStore(path)
        store.prepare()
        spark = open_session(jars, memory=memory)
        return Environment.of(spark, small_batch_session(spark), store, StoreLog(store.path), keys)

    @staticmethod
    def of(
        spark: SparkSession,
        small: SparkSession,
        store: TableStore[Any],
        log: RecordLog,
        keys: FollowedKeys | None = None,
    ) -> Environment:
        """An environment whose log, where there are keys, has the erasures among its topics."""
        from projections.logs.erasures import LogWithErasures

        return Environment(spark, small, store, log if keys is None else LogWithErasures(log, keys), keys)

    @cached_property
    def keeper(self) -> Keeper[Any]:
        """What Spark does with the tables of the store."""
        return self.store.keeper(self)

    def close(self) -> None:
        """Stop Spark and close the connections."""
        self.spark.stop()
        self.store.close()


def _prepared(views_url: str) -> TableStore[Any]:
    from projections.tablestore.opening import open_table_store

    store = open_table_store(views_url)
    store.prepare()
    return store


def _archived(spark: SparkSession, log: ArchivableLog, path: str | Path) -> RecordLog:
    from projections.spark.archive.delta_archive import archived_log

    return archived_log(spark, log, path)
