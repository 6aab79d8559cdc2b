"""Read your own writes: wait until a view has the event that a command led to.

    with AppliedVersions("postgresql+psycopg://shop@db/views", group="shop", table="orders") as orders:
        orders.wait_for("order-o1", version=3, timeout=5.0)

The state of a table that is folded from events has the version that each stream stands at, and moves with the views in
one transaction. So nothing but the views' database is asked: no Spark, no broker, no runner.
"""

from __future__ import annotations

import time
from typing import Final

from eventstore import restarts
from eventstore.closing import Closing
from eventstore.identifiers import StreamName
from projections.errors import CodeFailed, NotYetApplied, SparkFailed, SparkStopped, StagingLost, TableStoreUnavailable
from projections.stores.opening import open_table_store
from projections.stores.versions import StateVersions

# An indexed query of a row takes a millisecond; a batch takes a fifth of a second at least.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.2
_TIMEOUT: Final = 10.0


class AppliedVersions(Closing):
    """How far the streams of one table of a group are applied, for reading your own writes.

    Args:
        url: SQLAlchemy's URL of the views' database.
        group: The name of the group.
        table: The table's name in the group's views. It must be made by `Table.from_events`, with the aggregate's id as
            its key.

    Raises:
        InvalidDefinition: The table is another one, or a stream of another category. Raised by the methods.

    Examples:
        >>> applied.wait_for("order-o1", result.version, timeout=5)
    """

    def __init__(self, url: str, *, group: str, table: str) -> None:
        self._store = open_table_store(url)
        self._versions = StateVersions(self._store, group=group, table=table)
        self._place = f"table {table} of group {group}"

    def version_of(self, stream: str) -> int | None:
        """Return a stream's version in the serving views, None if they have no event of it.

        Raises InvalidIdentifier, NoServingGeneration, InvalidDefinition or TableStoreUnavailable.
        """
        return self._versions.version_of(StreamName.parse(stream))

    def wait_for(self, stream: str, version: int, *, timeout: float = _TIMEOUT) -> int:
        """Wait until the views show a stream at a version or later, and return the version they show.

        Raises NotYetApplied after ``timeout`` seconds, with the version at that time. Raises the errors of
        `version_of`.
        """
        until, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while (current := self.version_of(stream)) is None or current < version:
            if (left := until - time.monotonic()) <= 0:
                raise _not_yet(stream, version, current, seconds=timeout, place=self._place)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return current

    def close(self) -> None:
        """Close the connections."""
        self._store.close()


def _not_yet(stream: str, version: int, current: int | None, *, seconds: float, place: str) -> NotYetApplied:
    stands = "is not there yet" if current is None else f"stands at version {current}"
    error = NotYetApplied(
        f"{stream} {stands}, and did not reach version {version} within {seconds:g} s",
        remedy="check that the group's runner runs (factfold projections status), and its lag in its log or metrics",
        place=place,
    )
    error.version = current
    return error


# What Spark says of a database or a broker in its own words is SparkFailed.
PASSING: Final = (*restarts.PASSING, SparkFailed, StagingLost, TableStoreUnavailable)


def passes(error: Exception) -> bool:
    """Whether a failure may be over when the same is tried again.

    Nothing brings Spark's JVM back in this process, and code that raises on a record raises on it again.
    """
    return isinstance(error, PASSING) and not isinstance(error, SparkStopped | CodeFailed)
