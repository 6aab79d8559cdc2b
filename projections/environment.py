"""Opens the connections of a projection process: the one place that opens stores, logs and Spark together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from eventstore.erasure import FollowedKeys
from eventstore.settings import Settings
from projections.connections import Connections, SparkSettings
from projections.logs.layers import ArchivableLog, LogWithErasures
from projections.logs.port import RecordLog
from projections.stores.opening import open_table_store
from projections.stores.sql import TableStore
from projections.stores.sqlite import SqliteTableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from projections.declaring.view_topics import LakeTables
    from projections.spark.keeping import Keeper


@dataclass(frozen=True)
class Environment(Connections):
    """One process's connections, for `rebuild`, `open_runner` and `verify`. Use `open` or `embedded`.

    Attributes:
        spark: The session for rebuilds.
        small: The session for small batches.
        store: The table store.
        log: The log of the topics.
        keys: The key store that opens personal columns. The caller closes it.

    Raises:
        ProjectionError: The executors of ``spark`` could not reach the table store.

    Examples:
        >>> with Environment.open(Settings(), views_url="postgresql+psycopg://…", jars=spark_jars()) as environment:
        ...     rebuild(environment, shop_views)
    """

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
        """Start Spark for topics in Kafka and views in PostgreSQL, and prepare the views' database.

        Args:
            settings: The settings of Kafka.
            views_url: SQLAlchemy's URL of the views' database.
            jars: The jars for Kafka and Avro. Delta tables of views, and archives, need those of Delta Lake too.
            memory: The heap of the driver.
            keys: The key store that opens personal columns.
            archive: The archive of topics, which is read instead of archived records.
            spark: The Spark master and settings, by default from the environment.

        Raises:
            ProjectionError: The archive cannot be opened.
            TableStoreUnavailable: The database did not answer.
        """
        # What follows needs the extras spark and kafka, and a declared group does without them.
        from projections.spark.reading.kafka_source import KafkaLog
        from projections.spark.session import open_session, small_batch_session

        store = _prepared(views_url)  # before Spark starts, which takes seconds
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
        """Open one SQLite file with events, captured changes, state and views. It needs no server.

        Args:
            path: The file.
            jars: The jars for Avro. Without them events are decoded in Python, about ten times slower.
            memory: The heap of the driver.
            keys: The key store that opens personal columns.
        """
        from projections.spark.reading.store_source import StoreLog  # needs the extra spark
        from projections.spark.session import open_session, small_batch_session

        store = SqliteTableStore(path)
        store.prepare()
        spark = open_session(jars, memory=memory)
        return Environment.of(spark, small_batch_session(spark), store, StoreLog(store.path), keys)

    @staticmethod
    def of(
        spark: SparkSession,
        small: SparkSession,
        store: TableStore,
        log: RecordLog,
        keys: FollowedKeys | None = None,
    ) -> Environment:
        """Return an environment. With keys, its log includes the erasures."""
        return Environment(spark, small, store, log if keys is None else LogWithErasures(log, keys), keys)

    def close(self) -> None:
        """Stop Spark and close the connections."""
        from projections.spark.session import end_session  # needs the extra spark

        end_session(self.spark)
        self.store.close()

    @cached_property
    def lake(self) -> LakeTables:
        """The Delta tables that views fill."""
        from projections.spark.delta_tables import DeltaTables  # needs the extra spark

        return DeltaTables.of(self.spark)

    @cached_property
    def keeper(self) -> Keeper:
        """The operations of Spark on the tables of the store."""
        from projections.spark.keeping import Keeper  # needs the extra spark

        return Keeper(self, self.store)


def _prepared(views_url: str) -> TableStore:
    store = open_table_store(views_url)
    store.prepare()
    return store


def _archived(spark: SparkSession, log: ArchivableLog, path: str | Path) -> RecordLog:
    from projections.spark.archive.delta_archive import archived_log  # needs the extra spark

    return archived_log(spark, log, path)
