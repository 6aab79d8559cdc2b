"""The connections of a projection process: its Spark sessions, the log it reads, and the store of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventstore.closing import Closing
from eventstore.erasure import FollowedKeys
from projections.logs.port import RecordLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from projections.declaring.view_topics import LakeTables
    from projections.stores.sql import TableStore


@dataclass(frozen=True)
class Connections(Closing):
    """The sessions, the store and the log of one process. `projections.environment.Environment` opens them."""

    spark: SparkSession
    small: SparkSession
    store: TableStore
    log: RecordLog
    keys: FollowedKeys | None = None

    @property
    def lake(self) -> LakeTables:
        """The Delta tables that views fill; ProjectionError where Spark has no Delta Lake."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        self.store.check_master(str(self.spark.sparkContext.master))
