"""Running processes: the events they react to are delivered, and what is due is done, until a signal comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from datetime import datetime
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from eventstore.aggregates.dispatcher import Dispatcher
from eventstore.backends.sql.source import StoreSource
from eventstore.backends.sql.store import SqlEventStore
from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.subscriber import Subscriber
from eventstore.delivery.subscriptions import Subscription, subscription
from eventstore.errors import CheckpointMoved, SubscriptionError
from eventstore.fields.conversions import utc_now
from eventstore.processes.engine import ProcessEngine, StepAround
from eventstore.processes.process import Process, process_group
from eventstore.processes.worker import ProcessWorker, WorkReport
from eventstore.restarts import Outwaiting, Restarts
from eventstore.settings import Settings
from eventstore.store import RecordedEvent
from eventstore.subscribing import open_subscriber

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eventstore.aggregates.aggregate import Aggregate
    from eventstore.metrics import ProcessMetrics
    from eventstore.spans import Spans

_NO_TOPICS: Final[Mapping[str, str]] = {}
_STANDBY_SECONDS: Final = 1.0

Tell = Callable[[DeliveryReport | WorkReport], None]


def process_subscription(
    store: SqlEventStore,
    process: type[Process],
    *,
    topics: Mapping[str, str] = _NO_TOPICS,
    clock: Callable[[], datetime] = utc_now,
    around: StepAround | None = None,
    **options: Any,
) -> Subscription[..., None]:
    """Return the subscription that delivers events to a process. Its group is `<process>-process`.

    A step is stored in the store's own database, in the transaction of the inbox.

    Args:
        store: The process's store.
        process: The process.
        topics: The topics of categories that other services publish.
        clock: Gives the time of steps.
        around: A context manager around each step, such as a span.
        **options: The options of a subscription.

    Raises:
        StoreUnavailable: The database did not answer.
        StoreNotPrepared: The database has no tables of an event store.

    Examples:
        >>> process_subscription(store, Fulfilment).group
        'fulfilment-process'
    """
    engine = ProcessEngine(store, [process], around=around)
    read = {**store.topics_of(_categories(process)), **topics}

    @subscription([read[name] for name in _categories(process)], group=process_group(process), **options)
    def take(events: list[RecordedEvent], tx: Connection) -> None:
        engine.take_events(tx, events, now=clock())

    return take


def open_process(
    store: SqlEventStore,
    process: type[Process],
    *,
    settings: Settings | None = None,
    topics: Mapping[str, str] = _NO_TOPICS,
    clock: Callable[[], datetime] = utc_now,
    **options: Any,
) -> Subscriber:
    """Open a subscriber that delivers events to a process.

    With settings, events come from Kafka's topics. Without settings, they come from the store itself.

    Examples:
        >>> with open_process(store, Fulfilment) as subscriber:
        ...     subscriber.run(stop=stop)
    """
    declared = process_subscription(store, process, topics=topics, clock=clock, **options)
    if settings is not None:
        return open_subscriber(declared, settings=settings, engine=store.engine)
    source = StoreSource(store, declared, category=_categories(process))
    return Subscriber(declared, source, engine=store.engine)


def run_processes(
    store: SqlEventStore,
    processes: Sequence[type[Process]],
    *,
    stop: Event,
    settings: Settings | None = None,
    topics: Mapping[str, str] = _NO_TOPICS,
    commands: Sequence[type[Aggregate]] = (),
    dispatcher: Dispatcher | None = None,
    restarts: Restarts | None = None,
    on_batch: Tell = lambda report: None,
    metrics: ProcessMetrics | None = None,
    spans: Spans | None = None,
) -> WorkReport:
    """Deliver events to processes and do what is due until `stop` is set. Temporary failures lead to another start.

    Start it several times to share the work: a worker skips what another one holds.

    Args:
        store: The processes' store.
        processes: The processes.
        stop: Ends the run.
        settings: Read events from Kafka's topics. Without settings, one runner at a time reads them from the store.
        topics: The topics of categories that other services publish.
        commands: Aggregates whose scheduled commands are sent too.
        dispatcher: Sends the commands, by default one of the store.
        restarts: How often, and after which pauses, failed work is started again.
        on_batch: Is called after each batch of work.
        metrics: Counts for Prometheus.
        spans: Opens a span for each step, and for each command unless a dispatcher is given.

    Raises:
        SubscriptionError: The work failed too often in a row. Other errors end the run at once.

    Examples:
        >>> run_processes(store, [Fulfilment], stop=stop)
    """
    around = None if spans is None else spans.step
    sender = dispatcher or Dispatcher(store, middleware=() if spans is None else [spans.command])
    worker = ProcessWorker(store, processes, commands=commands, dispatcher=sender, around=around)
    if metrics is not None:
        metrics.watch(worker)
    outwaiting = _outwaiting("worker of processes", "factfold_scheduled", restarts, metrics)
    worked = None if metrics is None else metrics.worked
    tell = outwaiting.passing_on(worked, on_batch, works=lambda report: report.done > 0)
    jobs: list[Callable[[], object]] = [partial(_work, worker, stop, outwaiting, tell)]
    for kind in processes:
        opening = partial(open_process, store, kind, settings=settings, topics=topics, around=around)
        outwaiting = _outwaiting("process", kind.category, restarts, metrics)
        delivered = None if metrics is None else partial(metrics.delivered, kind.category)
        jobs.append(partial(_deliver, opening, stop, outwaiting, outwaiting.passing_on(delivered, on_batch)))
    with ThreadPoolExecutor(len(jobs), thread_name_prefix="processes") as threads:
        running = [threads.submit(job) for job in jobs]
        wait(running, return_when=FIRST_EXCEPTION)
        stop.set()
    for job in running:
        job.result()
    return worker.report


def _work(worker: ProcessWorker, stop: Event, outwaiting: Outwaiting, on_batch: Callable[[WorkReport], None]) -> None:
    while not stop.is_set():
        with outwaiting.over(stop):
            worker.run(stop=stop, on_batch=on_batch)


def _deliver(opening: Callable[[], Subscriber], stop: Event, outwaiting: Outwaiting, on_batch: Tell) -> None:
    while not stop.is_set():
        try:
            with outwaiting.over(stop), opening() as opened:
                opened.run(stop=stop, on_batch=on_batch)
        except CheckpointMoved:  # another runner delivers: this one takes over where it ends
            stop.wait(_STANDBY_SECONDS)


def _outwaiting(what: str, place: str, restarts: Restarts | None, metrics: ProcessMetrics | None) -> Outwaiting:
    return Outwaiting(restarts or Restarts(), what=what, place=place, gave_up=SubscriptionError, counted_by=metrics)


def _categories(process: type[Process]) -> list[str]:
    return sorted(process.reactions.categories)
