"""Metrics of a relay."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from eventstore.relay_status import RelayReport, RelayStatus

EVENTS: Final = Family("factfold_relay_events_total", Kind.COUNTER, "Events published.")
SCHEMAS: Final = Family("factfold_relay_schemas_total", Kind.COUNTER, "Schemas published.")
TRANSACTIONS: Final = Family("factfold_relay_transactions_total", Kind.COUNTER, "Transactions of Kafka committed.")
LEADS: Final = Family("factfold_relay_is_leader", Kind.GAUGE, "1 if this relay publishes, 0 if it stands by.")
WAITING: Final = Family(
    "factfold_relay_lag_events", Kind.GAUGE, "Events of the store that a topic does not hold yet.", ("topic",)
)
SECONDS: Final = Family(
    "factfold_relay_lag_seconds", Kind.GAUGE, "Age of the oldest event that a topic does not hold yet, 0 if none.",
    ("topic",),
)  # fmt: skip


class RelayMetrics(RunnerMetrics):
    """The metrics of one relay, for `Relay`.

    Args:
        name: The name of the store, such as its schema.

    Examples:
        >>> relay = Relay(store, Settings(), metrics=RelayMetrics())
    """

    families: ClassVar[tuple[Family, ...]] = (*RUNNER, EVENTS, SCHEMAS, TRANSACTIONS, LEADS, WAITING, SECONDS)

    def __init__(self, name: str = "store") -> None:
        super().__init__("relay", name)

    def state(self, state: str) -> None:
        """Note whether the relay leads."""
        self.set(LEADS, state == "leading")

    def published(self, report: RelayReport) -> None:
        """Raise the counters to the totals of a report: the relay works."""
        self.recovered()
        self.raise_to(EVENTS, report.events)
        self.raise_to(SCHEMAS, report.schemas)
        self.raise_to(TRANSACTIONS, report.transactions)

    def behind(self, status: RelayStatus) -> None:
        """Note what each topic does not hold yet."""
        now = datetime.now(UTC)
        for one in status.waiting:
            age = 0.0 if one.oldest is None else max(0.0, (now - one.oldest).total_seconds())
            self.set(WAITING, one.events, topic=one.topic)
            self.set(SECONDS, age, topic=one.topic)
