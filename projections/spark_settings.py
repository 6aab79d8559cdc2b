"""Where Spark runs, from the environment, as `eventstore.settings` has it for Kafka.

    FACTFOLD_SPARK_MASTER=spark://master:7077
    FACTFOLD_SPARK_CONFIG='{"spark.driver.host": "10.0.0.7", "spark.executor.memory": "4g"}'

What the program gives wins over variables.
"""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


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
