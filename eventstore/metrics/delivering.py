"""Metrics of a subscription's runner."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from eventstore.delivery.around import HandlerCall
    from eventstore.delivery.attempt import DeliveryReport
    from eventstore.delivery.source import Lag
    from eventstore.delivery.subscriptions import Subscription
    from eventstore.settings import Settings

RECORDS: Final = Family(
    "factfold_subscription_records_total", Kind.COUNTER,
    "Records by what became of them: handled, duplicates, skipped, retried, dead or postponed.", ("group", "outcome"),
)  # fmt: skip
LAG_RECORDS: Final = Family(
    "factfold_subscription_lag_records", Kind.GAUGE, "Offsets of a topic that wait for the whole group.",
    ("group", "topic"),
)  # fmt: skip
LAG_SECONDS: Final = Family(
    "factfold_subscription_lag_seconds", Kind.GAUGE, "Age of the oldest record of a topic that waits, 0 if none does.",
    ("group", "topic"),
)  # fmt: skip
HANDLER_SECONDS: Final = Family(
    "factfold_subscription_handler_seconds", Kind.HISTOGRAM, "Seconds of one call of the handler.", ("group",),
    (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0),
)  # fmt: skip


class SubscriptionMetrics(RunnerMetrics):
    """The metrics of one subscription's runner, for `run_subscription`.

    Examples:
        >>> metrics = SubscriptionMetrics("fraud")
        >>> with serve_metrics(metrics, port=9464):
        ...     run_subscription(review, stop=stop, engine=engine, metrics=metrics)
    """

    families: ClassVar[tuple[Family, ...]] = (*RUNNER, RECORDS, LAG_RECORDS, LAG_SECONDS, HANDLER_SECONDS)

    def __init__(self, group: str) -> None:
        super().__init__("subscriptions", group, group=group)
        for outcome in ("handled", "duplicates", "skipped", "retried", "dead", "postponed"):
            self.count(RECORDS, 0, outcome=outcome)

    def delivered(self, report: DeliveryReport) -> None:
        """Count a batch."""
        for outcome, count in dataclasses.asdict(report).items():
            self.count(RECORDS, count, outcome=outcome)

    @contextmanager
    def timed(self, call: HandlerCall) -> Iterator[None]:
        """Time a call of the handler."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.observe(HANDLER_SECONDS, time.perf_counter() - began)

    def behind(self, lag: Lag) -> None:
        """Note how far the group is behind."""
        topics = {partition.topic for partition in lag.partitions}
        for topic in topics:
            parts = [partition for partition in lag.partitions if partition.topic == topic]
            self.set(LAG_RECORDS, sum(part.records for part in parts), topic=topic)
            self.set(LAG_SECONDS, max(part.seconds for part in parts), topic=topic)

    def look(self, subscription: Subscription[..., Any], settings: Settings) -> None:
        """Ask the broker how far the whole group is behind, its retry topics included.

        Of a queue (a share group) the client does not know it: nothing is asked.
        """
        from eventstore.kafka.admin import OffsetReader  # needs the extra kafka
        from eventstore.kafka.groups import read_topics, subscription_lag  # needs the extra kafka

        if subscription.share:
            return
        with OffsetReader(settings) as reader:
            chosen = subscription.chosen(reader.names())
        topics = read_topics(settings, chosen, group=subscription.group)
        self.behind(subscription_lag(settings, topics, group=subscription.group))
