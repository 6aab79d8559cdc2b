"""Which failures pass by themselves, and how long to wait for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventstore.errors import BrokerRefused, BrokerUnreachable, RegistryUnreachable, StoreUnavailable
from projections.errors import CodeFailed, SparkFailed, SparkGone, StagingLost, TableStoreUnavailable

# A database or a broker that restarts, a leader that moves; what Spark says of it in its own words is SparkFailed.
PASSING: Final = (
    BrokerRefused, BrokerUnreachable, RegistryUnreachable, SparkFailed, StagingLost, StoreUnavailable,
    TableStoreUnavailable,
)  # fmt: skip


@dataclass(frozen=True)
class Restarts:
    """How often in a row what failed is started again, and after how many seconds: doubled each time."""

    limit: int = 8
    first: float = 1.0
    longest: float = 30.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return float(min(self.longest, self.first * 2 ** (failures - 1)))


def passes(error: Exception) -> bool:
    """Whether a failure may be over when the same is tried again.

    Nothing brings Spark's JVM back in this process, and code that raises on a record raises on it again.
    """
    return isinstance(error, PASSING) and not isinstance(error, SparkGone | CodeFailed)
