"""How many records a batch reads: as many as are applied in about the time it should take.

Nothing is handed on before it is asked for, so this is the back pressure too: while the store or Spark is slow batches
become small, what waits stays in the topics, and memory holds one batch of bounded size at most.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from projections.errors import InvalidDefinition

# One batch says little: a pause of the garbage collector must not cost the next ten, nor a quick one flood them.
_SHRINKS_TO: Final = 1 / 4
_GROWS_TO: Final = 2.0
# Within a quarter of the target the size stays: a size that moves all the time makes batches that cannot be compared.
_NEAR: Final = 1.25
# A batch of less than half the size says nothing about whole ones: it was all there was.
_TELLING: Final = 1 / 2


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The number of records in the next batch, adapted so that batches take a target time.

    Attributes:
        records: The size of the first batch.
        target: The seconds that a batch is to take.
        least: The smallest size.
        most: The greatest size.

    Raises:
        InvalidDefinition: The bounds contradict each other.

    Examples:
        >>> options = RunnerOptions(batch=BatchSize(target=0.5))
        >>> options.batch.after(20_000, seconds=2.0).records
        5000
    """

    records: int = 20_000
    target: float = 2.0
    least: int = 500
    most: int = 100_000

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.records <= self.most or self.target <= 0:
            raise InvalidDefinition(
                f"a batch cannot have {self.records} records, {self.least} to {self.most}, in {self.target} s",
                remedy="give 1 <= least <= records <= most, and a target above zero",
            )

    def after(self, records: int, *, seconds: float) -> BatchSize:
        """Return the size of the next batch, after a batch of so many records took so many seconds."""
        if seconds > self.target * _NEAR:
            in_time = min(records, self.records) * self.target / seconds
            return self._of(max(in_time, self.records * _SHRINKS_TO))
        if seconds * _NEAR < self.target and records >= self.records * _TELLING:
            return self._of(self.records * (min(_GROWS_TO, self.target / seconds) if seconds else _GROWS_TO))
        return self

    def _of(self, records: float) -> BatchSize:
        return dataclasses.replace(self, records=max(self.least, min(self.most, int(records))))
