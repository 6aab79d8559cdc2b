"""Which failures of projections pass by themselves; how long to wait for that is `eventstore.restarts`."""

from __future__ import annotations

from typing import Final

from eventstore import restarts
from projections.errors import CodeFailed, SparkFailed, SparkStopped, StagingLost, TableStoreUnavailable

# What Spark says of a database or a broker in its own words is SparkFailed.
PASSING: Final = (*restarts.PASSING, SparkFailed, StagingLost, TableStoreUnavailable)


def passes(error: Exception) -> bool:
    """Whether a failure may be over when the same is tried again.

    Nothing brings Spark's JVM back in this process, and code that raises on a record raises on it again.
    """
    return isinstance(error, PASSING) and not isinstance(error, SparkStopped | CodeFailed)
