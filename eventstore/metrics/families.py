"""Families of metrics: a name, a type, a meaning and labels, declared as data and given values here.

A family is what Prometheus shows under one name. The documentation's table and the dashboard are tested against these
declarations, so a metric that is not declared cannot be exported.

Metrics over HTTP, and looks at what a runner does not learn by itself.

Metrics of the runners of subscriptions, processes and relays.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from threading import TIMEOUT_MAX, Event, Lock, Thread
from typing import TYPE_CHECKING, Any, ClassVar, Final

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
    write_to_textfile,
)

from eventstore.errors import DeclarationError, FactfoldError

if TYPE_CHECKING:
    from eventstore.backends.sql.outbox import RelayReport, RelayStatus
    from eventstore.delivery.attempt import DeliveryReport
    from eventstore.delivery.calls import HandlerCall
    from eventstore.delivery.source import Lag
    from eventstore.delivery.subscriptions import Subscription
    from eventstore.processes.worker import ProcessWorker, WorkReport
    from eventstore.settings import Settings


class Kind(StrEnum):
    """The type of a family, by Prometheus' names.

    Examples:
        >>> OPEN = Family("factfold_open_reviews", Kind.GAUGE, "Reviews that wait for a clerk.", ("desk",))
    """

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


_CLASSES: Final[Mapping[Kind, Any]] = {Kind.COUNTER: Counter, Kind.GAUGE: Gauge, Kind.HISTOGRAM: Histogram}


@dataclass(frozen=True, slots=True)
class Family:
    """One name of a metric, as a query writes it: counters end in `_total`, times are seconds, sizes are bytes.

    Args:
        name: The name, with the prefix `factfold_`.
        kind: The type.
        help: The meaning, one sentence.
        labels: The labels of each value.
        bounds: The upper bounds of a histogram's buckets.

    Examples:
        >>> REVIEWS = Family("factfold_reviews_total", Kind.COUNTER, "Reviews, by their verdict.", ("verdict",))
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def gauge(name: str, help: str, *labels: str) -> Family:
    """Declare a gauge by its name without the prefix."""
    return Family(f"factfold_{name}", Kind.GAUGE, help, labels)


RUNNER_INFO: Final = Family(
    "factfold_runner_info", Kind.GAUGE, "Always 1: what runs at this address, and its version of Factfold.",
    ("runner", "name", "version"),
)  # fmt: skip
RESTARTS: Final = Family(
    "factfold_runner_restarts_total", Kind.COUNTER, "Starts after a failure that may pass.", ("runner", "name")
)
FAILURES: Final = Family(
    "factfold_runner_failures_in_a_row", Kind.GAUGE, "Failures since the runner last worked.", ("runner", "name")
)
LOOK_FAILURES: Final = Family(
    "factfold_runner_look_failures_total", Kind.COUNTER,
    "Looks at a database, broker or worker that failed, and left older values in place.", ("runner", "name"),
)  # fmt: skip
RUNNER: Final = (RUNNER_INFO, RESTARTS, FAILURES, LOOK_FAILURES)


class Metrics:
    """Values of some families, from any thread. `registry` is what `serve_metrics` serves.

    A subclass declares its `families` and says in methods what they count.

    Args:
        labels: Values of labels that are the same for all of these metrics.

    Examples:
        >>> class ReviewMetrics(Metrics):
        ...     families = (REVIEWS,)
        ...     def reviewed(self, verdict: str) -> None:
        ...         self.count(REVIEWS, verdict=verdict)
    """

    families: ClassVar[tuple[Family, ...]] = ()

    def __init__(self, **labels: str) -> None:
        self.registry = CollectorRegistry()
        self._fixed = labels
        self._metrics, self._totals, self._lock = dict[str, Any](), dict[object, float](), Lock()
        self._shown: dict[str, set[tuple[str, ...]]] = {}
        for family in self.families:
            self._make(family)

    def count(self, family: Family, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._child(Kind.COUNTER, family, labels).inc(amount)

    def raise_to(self, family: Family, total: float, **labels: str) -> None:
        """Raise a counter by what a total, read elsewhere, has grown. The first total counts from 0."""
        with self._lock:
            key = family.name, *sorted(labels.items())
            before = self._totals.get(key, 0.0)
            self._totals[key] = total
        self.count(family, max(0.0, total - before), **labels)

    def set(self, family: Family, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._child(Kind.GAUGE, family, labels).set(value)

    def compute(self, family: Family, value: Callable[[], float], **labels: str) -> None:
        """Compute a gauge at each scrape. The function must be quick and must not raise."""
        self._child(Kind.GAUGE, family, labels).set_function(value)

    def replace(self, family: Family, values: Iterable[tuple[dict[str, str], float]]) -> None:
        """Set all values of a gauge: what is not among them is no longer shown."""
        shown = set()
        for labels, value in values:
            self.set(family, value, **labels)
            shown.add(tuple(self._all(family, labels).values()))
        # Not cleared before: a scrape in between would find nothing, and an alert would start to wait again.
        for former in self._shown.get(family.name, set()) - shown:
            self._metrics[family.name].remove(*former)
        self._shown[family.name] = shown

    def observe(self, family: Family, value: float, **labels: str) -> None:
        """Add a value to a histogram."""
        self._child(Kind.HISTOGRAM, family, labels).observe(value)

    def _make(self, family: Family) -> None:
        buckets = {"buckets": family.bounds} if family.kind is Kind.HISTOGRAM else {}
        made = _CLASSES[family.kind](family.name, family.help, family.labels, registry=self.registry, **buckets)
        self._metrics[family.name] = made
        # One that appears with its first count shows no increase.
        if family.kind is not Kind.GAUGE and family.labels and not set(family.labels) - set(self._fixed):
            made.labels(**self._all(family, {}))

    def _child(self, kind: Kind, family: Family, labels: dict[str, str]) -> Any:
        if family.name not in self._metrics or family.kind is not kind:
            raise DeclarationError(
                f"{type(self).__name__} has no {family.name} that this method can change",
                remedy="list the family in families=, and use the method of its kind: count, set or observe",
                place=family.name,
            )
        metric = self._metrics[family.name]
        return metric.labels(**self._all(family, labels)) if family.labels else metric

    def _all(self, family: Family, labels: dict[str, str]) -> dict[str, str]:
        return {label: labels[label] if label in labels else self._fixed[label] for label in family.labels}


class RunnerMetrics(Metrics):
    """The metrics of one runner: what runs here, its restarts, and the families of a subclass.

    Args:
        runner: What runs, such as `subscriptions`.
        name: Its name, such as the group.
        labels: Values of labels that are the same for all of the runner's metrics.

    Examples:
        >>> class DeskMetrics(RunnerMetrics):
        ...     families = (*RunnerMetrics.families, REVIEWS)
        >>> metrics = DeskMetrics("desk", "review-desk")
    """

    families: ClassVar[tuple[Family, ...]] = RUNNER

    def __init__(self, runner: str, name: str, **labels: str) -> None:
        super().__init__(runner=runner, name=name, version=version("factfold"), **labels)
        self.set(RUNNER_INFO, 1)
        self.set(FAILURES, 0)

    def restarted(self, failures: int) -> None:
        """Count a start after so many failures in a row."""
        self.count(RESTARTS)
        self.set(FAILURES, failures)

    def recovered(self, failures: int = 0) -> None:
        """Note that the runner works again."""
        self.set(FAILURES, 0)

    def look_failed(self) -> None:
        """Count a look that failed."""
        self.count(LOOK_FAILURES)


LOOK_SECONDS: Final = 15.0  # as often as Prometheus scrapes unless it is configured otherwise

log = structlog.get_logger(__name__)


@contextmanager
def serve_metrics(metrics: Metrics, *, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer GET /metrics for the block, from a thread of its own.

    Args:
        metrics: The metrics of a runner. CPU time and memory of the process are served with them.
        port: The port, 0 for a free one.
        host: The address that it listens on.

    Returns:
        The port.

    Raises:
        FactfoldError: The address cannot be listened on.

    Examples:
        >>> with serve_metrics(metrics, port=9464):
        ...     run_subscription(review, stop=stop, engine=engine, metrics=metrics)
    """
    try:
        server, thread = start_http_server(port, host, registry=metrics.registry)
    except OSError as error:
        raise FactfoldError(
            f"metrics cannot be served: {error.strerror}",
            remedy="choose another --metrics-port, or omit it",
            place=f"{host}:{port}",
            code="port-taken",
        ) from error
    process = ProcessCollector(registry=metrics.registry)
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        metrics.registry.unregister(process)


def write_metrics(metrics: Metrics, path: str) -> None:
    """Write metrics to a file, in one step: what reads it finds the former content or the new one.

    The file is for the textfile collector of node_exporter, or to be sent to a Pushgateway.

    Args:
        metrics: The metrics.
        path: The file, with the suffix .prom for node_exporter.

    Examples:
        >>> write_metrics(metrics, "/var/lib/node_exporter/shop.prom")
    """
    write_to_textfile(path, metrics.registry)


@contextmanager
def refreshing(metrics: RunnerMetrics, look: Callable[[], None], *, every: float = LOOK_SECONDS) -> Iterator[None]:
    """Look at once and then every so many seconds during the block, in a thread of its own.

    A look that fails is counted, and logged if it is the first in a row.

    Args:
        metrics: The metrics that count failed looks.
        look: Notes current figures in the metrics, such as the lag.
        every: Seconds between two looks.

    Examples:
        >>> with serve_metrics(metrics, port=9464), refreshing(metrics, lambda: metrics.look(review, Settings())):
        ...     run_subscription(review, stop=stop, engine=engine, metrics=metrics)
    """
    stop = Event()
    thread = Thread(target=_look, args=(metrics, look, every, stop), name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LOOK_SECONDS)


def _look(metrics: RunnerMetrics, look: Callable[[], None], every: float, stop: Event) -> None:
    is_first = True
    while not stop.is_set():
        try:
            look()
            is_first = True
        except Exception as error:
            metrics.look_failed()
            if is_first:
                cause = error.message if isinstance(error, FactfoldError) else type(error).__name__
                log.warning("metrics not refreshed", cause=cause, retry_in=every)
            is_first = False
        stop.wait(min(every, TIMEOUT_MAX))


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
        for one in status.waiting:
            self.set(WAITING, one.events, topic=one.topic)
            self.set(WAITING_AGE, one.seconds, topic=one.topic)
