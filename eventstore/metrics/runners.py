"""Metrics of the runners of subscriptions, processes and relays."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from eventstore.backends.sql.outbox import RelayReport, RelayStatus
    from eventstore.delivery.attempt import DeliveryReport
    from eventstore.delivery.calls import HandlerCall
    from eventstore.delivery.source import Lag
    from eventstore.delivery.subscriptions import Subscription
    from eventstore.processes.worker import ProcessWorker, WorkReport
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


PROCESS_EVENTS: Final = Family(
    "factfold_process_events_total", Kind.COUNTER,
    "Events delivered to a process, by what became of them (see factfold_subscription_records_total).",
    ("process", "outcome"),
)  # fmt: skip
COMMANDS: Final = Family("factfold_process_commands_total", Kind.COUNTER, "Commands sent for processes or schedules.")
TIMERS: Final = Family("factfold_process_timers_total", Kind.COUNTER, "Timers fired.")
FAILED: Final = Family(
    "factfold_process_failures_total", Kind.COUNTER, "Commands, timers and steps that failed and wait for another try."
)
OVERDUE: Final = Family(
    "factfold_process_overdue_seconds", Kind.GAUGE,
    "Seconds since the oldest command or timer of this runner was due, 0 if none is.",
)  # fmt: skip


class ProcessMetrics(RunnerMetrics):
    """The metrics of one runner of processes, for `run_processes`.

    Args:
        name: A name of the runner, such as the processes' names.

    Examples:
        >>> metrics = ProcessMetrics("shop")
        >>> with serve_metrics(metrics, port=9464):
        ...     run_processes(store, [Fulfilment], stop=stop, metrics=metrics)
    """

    families: ClassVar[tuple[Family, ...]] = (*RUNNER, PROCESS_EVENTS, COMMANDS, TIMERS, FAILED, OVERDUE)

    def __init__(self, name: str) -> None:
        super().__init__("processes", name)

    def delivered(self, process: str, report: DeliveryReport) -> None:
        """Count a batch of events that was delivered to a process."""
        for outcome, count in dataclasses.asdict(report).items():
            self.count(PROCESS_EVENTS, count, process=process, outcome=outcome)

    def watch(self, worker: ProcessWorker) -> None:
        """Show for how long the oldest command or timer of a worker has been due."""
        self.compute(OVERDUE, worker.overdue)

    def worked(self, report: WorkReport) -> None:
        """Count what was due."""
        self.count(COMMANDS, report.commands)
        self.count(TIMERS, report.timers)
        self.count(FAILED, report.failed)


RELAYED_EVENTS: Final = Family("factfold_relay_events_total", Kind.COUNTER, "Events published.")
SCHEMAS: Final = Family("factfold_relay_schemas_total", Kind.COUNTER, "Schemas published.")
TRANSACTIONS: Final = Family("factfold_relay_transactions_total", Kind.COUNTER, "Transactions of Kafka committed.")
LEADS: Final = Family("factfold_relay_is_leader", Kind.GAUGE, "1 if this relay publishes, 0 if it stands by.")
WAITING: Final = Family(
    "factfold_relay_lag_events", Kind.GAUGE, "Events of the store that a topic does not hold yet.", ("topic",)
)
WAITING_AGE: Final = Family(
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

    families: ClassVar[tuple[Family, ...]] = (
        *RUNNER,
        RELAYED_EVENTS,
        SCHEMAS,
        TRANSACTIONS,
        LEADS,
        WAITING,
        WAITING_AGE,
    )

    def __init__(self, name: str = "store") -> None:
        super().__init__("relay", name)

    def state(self, state: str) -> None:
        """Note whether the relay leads."""
        self.set(LEADS, state == "leading")

    def published(self, report: RelayReport) -> None:
        """Raise the counters to the totals of a report: the relay works."""
        self.recovered()
        self.raise_to(RELAYED_EVENTS, report.events)
        self.raise_to(SCHEMAS, report.schemas)
        self.raise_to(TRANSACTIONS, report.transactions)

    def behind(self, status: RelayStatus) -> None:
        """Note what each topic does not hold yet."""
        now = datetime.now(UTC)
        for one in status.waiting:
            age = 0.0 if one.oldest is None else max(0.0, (now - one.oldest).total_seconds())
            self.set(WAITING, one.events, topic=one.topic)
            self.set(WAITING_AGE, age, topic=one.topic)
