"""Records by key, for the aggregates that reduce them to a row each.

``max_by`` of a text keeps Spark from hashing, and it would sort twice: before the exchange for partial aggregates,
which spare little where a key has few records, and after it. Sorted here by a hash of the key, many rows are exchanged
and sorted once, and aggregated as they stream by, in memory that does not grow with the keys. A few rows are in one
partition and stay there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F

# Spark's own rule, off by default, puts one aggregate in the place of two whose input is sorted.
SORTED_AGGREGATES: Final = "spark.sql.execution.replaceHashWithSortAgg"
_HASH: Final = "_hash"


def is_for_many(session: SparkSession) -> bool:
    """Whether a session is for many rows: others are for those of a small batch, in one partition."""
    return session.conf.get(SORTED_AGGREGATES) == "true"


def gathered(rows: DataFrame, key: Sequence[str]) -> GroupedData:
    """The rows grouped by the columns of a key; a column ``_hash`` may be among those of the result."""
    if not is_for_many(rows.sparkSession):
        return rows.groupBy(*key)
    hashed = rows.withColumn(_HASH, F.xxhash64(*key))
    return hashed.repartition(_HASH).sortWithinPartitions(_HASH, *key).groupBy(_HASH, *key)
