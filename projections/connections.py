"""The connections of a projection process: its Spark sessions, the log it reads, and the store of its tables.

Where Spark runs is taken from the environment, as `eventstore.settings` has it for Kafka.

    FACTFOLD_SPARK_MASTER=spark://master:7077
    FACTFOLD_SPARK_CONFIG='{"spark.driver.host": "10.0.0.7", "spark.executor.memory": "4g"}'

What the program gives wins over variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

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


class SparkSettings(BaseSettings):
    """Where Spark runs, from arguments or from variables.

    Attributes:
        master: The Spark master, by default ``local[*]``.
        config: Settings by Spark's names.

    Examples:
        >>> spark = SparkSettings(master="spark://master:7077", config={"spark.driver.host": "10.0.0.7"})
        >>> environment = Environment.open(Settings(), views_url=views_url, jars=spark_jars(), spark=spark)
    """

    model_config = SettingsConfigDict(env_prefix="FACTFOLD_SPARK_", frozen=True, extra="forbid")

    master: str | None = None
    config: dict[str, str] = Field(default_factory=dict)
