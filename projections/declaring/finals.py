"""The declaration of final results: the promise after which rows of a view do not change any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from projections.declaring.timing.lengths import Lasting, exact
from projections.declaring.view_topics import FinalTopic
from projections.errors import InvalidDefinition

_NO_PROMISE: Final = "say how late a row may be in the log: FinalResults('window_end', after='10 minutes')"


@dataclass(frozen=True)
class FinalResults:
    """When the rows of a view are final. Each final row is given out once.

    ``after`` is a promise: whatever belongs to a row is in the log at most so long after that time, by the clock of the
    views' database. Time passes by that clock once the run has applied the whole log: a quiet topic or a row stamped in
    the future does not stop it. A row that breaks the promise corrects the view, and is listed as late.

    Attributes:
        on: The column with the row's time.
        after: The time after it when the row is final.
        max_ahead: Rows that are further in the future are counted.
        topic: A topic that gets each result once. Nothing is removed from it.

    Raises:
        InvalidDefinition: A value is wrong.

    Examples:
        >>> @view(by="window_start", final=FinalResults("window_end", after="10 minutes"))
        ... def orders_per_hour(by_hour):
        ...     ends, orders = F.max("window_end").alias("window_end"), F.count("*").alias("orders")
        ...     return by_hour.groupBy("window_start").agg(ends, orders)
    """

    on: str
    after: Lasting | None = None
    max_ahead: Lasting = "1 day"
    topic: str | FinalTopic | None = None

    def __post_init__(self) -> None:
        for name, micros in (("after", self.after_micros), ("max_ahead", self.ahead_micros)):
            if micros < 0:
                raise InvalidDefinition(f"{name} {getattr(self, name)!r} is negative", remedy=_NO_PROMISE)
        _ = self.published

    @property
    def published(self) -> FinalTopic | None:
        """The topic of the results, None if they are only in a table."""
        return FinalTopic.of(self.topic)

    @property
    def after_micros(self) -> int:
        """The promise in microseconds."""
        if self.after is None:
            raise InvalidDefinition(f"final results on {self.on!r} without a promise", remedy=_NO_PROMISE)
        return exact(self.after, what="after")

    @property
    def ahead_micros(self) -> int:
        """How far ahead a time may be, in microseconds."""
        return exact(self.max_ahead, what="max_ahead")
