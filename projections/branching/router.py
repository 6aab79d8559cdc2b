"""The router: runs the routing query of one topic's branches in a Spark session of its own, and starts it again.

Real-time mode holds one slot a partition for as long as a batch lasts, and with too few slots nothing fails: records of
the partitions left over just wait. So a router has a session to itself, and counts its slots before it starts.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from eventstore.errors import BrokerUnreachable, TopicMismatch
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader, end_offsets, ensure_topics
from eventstore.kafka.consumer import read_schemas
from eventstore.kafka.groups import offsets_behind
from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics
from eventstore.restarts import HEALTHY_SECONDS, Outwaiting, Restarts
from eventstore.settings import Settings
from eventstore.topics import DEAD_LETTERS, branch_topic, dead_letter_topic
from projections.declaring.branches import Branches
from projections.errors import ProjectionError, RealTimeRefused, UnknownSchemaId, passes
from projections.spark.routing import Mode, QueryPlace, Routing, RoutingQuery, Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from projections.branching.checkpoint import RouterCheckpoint

# At the end of a batch records wait while Spark commits it and plans the next; a longer batch makes that rarer, and a
# killed router repeats up to one batch. Measured: docs/decisions/0011.
BATCH_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.2
# Kafka's producer by itself waits two minutes for a missing topic; a schema that was given up may come late.
_LOOK_SECONDS: Final = 5.0
_SESSION: Final = {"spark.sql.streaming.stopTimeout": "1s"}  # a consumer without its broker may not be interruptible
_GLANCE_SECONDS: Final = 1.0  # so long a router looks for its broker while its query waits for it

log = structlog.get_logger()
RECORDS: Final = Family(
    "factfold_branches_records_total", Kind.COUNTER,
    "Records ever written to a branch or its dead-letter topic, repeated ones included.", ("topic", "branch"),
)  # fmt: skip
LAG: Final = Family(
    "factfold_branches_lag_offsets", Kind.GAUGE,
    "Offsets of the source topic after the last finished batch: in real-time mode it moves once a batch.", ("topic",),
)  # fmt: skip
RELOADS: Final = Family(
    "factfold_branches_reloads_total", Kind.COUNTER, "Starts of the query to learn new schemas.", ("topic",)
)


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """How a router runs.

    Attributes:
        start: Where the first start begins. Later starts go on from the Spark checkpoint.
        mode: Real-time, or micro-batches.
        batch_seconds: The seconds of a batch in real-time mode, at least 5.
        schema_patience: Seconds to wait for an unknown schema id. A schema and its first event take two topics. After
            that, the records become dead letters.
        restarts: How often, and after which pauses, a failed query starts again.

    Examples:
        >>> options = RouterOptions(start="end", batch_seconds=60)
        >>> with open_router(Settings(), payment_branches, checkpoints=folder, options=options, jars=jars) as router:
        ...     router.run(stop=stop)
    """

    start: Start = "beginning"
    mode: Mode = "real-time"
    batch_seconds: int = BATCH_SECONDS
    schema_patience: float = 5.0
    restarts: Restarts = field(default_factory=Restarts)


@dataclass
class Router:
    """Routes one topic to its branches. `open_router` makes it.

    Examples:
        >>> with open_router(Settings(), payment_branches, checkpoints=folder, jars=spark_jars()) as router:
        ...     router.run(stop=stop)
        ...     router.counts()
        {'suspicious': 12, 'validated': 488, 'dead-letter': 0}
    """

    spark: SparkSession
    settings: Settings
    branches: Branches
    checkpoint: RouterCheckpoint
    options: RouterOptions
    metrics: RouterMetrics | None = None
    reloads: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._given_up: frozenset[int] = frozenset()
        self._settled: Mapping[int, int] = {}
        self._outwaiting = router_outwaiting(self.branches, self.options.restarts, self.metrics)
        self.mode: Mode = self.options.mode

    def run(self, *, stop: Event) -> None:
        """Route until ``stop`` is set. Temporary failures lead to a new start from the Spark checkpoint.

        Raises:
            ProjectionError: The query failed too often in a row.
            TopicMissing: The topic does not exist.
            OffsetsLost: The topic lacks records that were not routed yet.
            SparkStopped: Spark's JVM ended.
        """
        while not stop.is_set():
            with self._outwaiting.over(stop):
                self._attempt(stop)

    @property
    def restarts(self) -> int:
        """How often the query was started again after a failure."""
        return self._outwaiting.restarts

    def counts(self) -> dict[str, int]:
        """The records written so far to each branch topic and the dead-letter topic, repeated ones included.

        Raises BrokerUnreachable if no broker answers within a second.
        """
        return branch_counts(self.settings, self.branches, deadline=_GLANCE_SECONDS)

    def _attempt(self, stop: Event) -> None:
        try:
            self._follow(stop)
        except UnknownSchemaId as unknown:
            self._learn(unknown, stop)
        except RealTimeRefused as refused:
            log.warning("real-time mode refused, micro-batches instead", topic=self.branches.topic, cause=str(refused))
            self.mode = "micro-batch"

    def _follow(self, stop: Event) -> None:
        """Start the query and watch it until ``stop`` is set or it is outdated; raises what ended the query."""
        self._require_topics()
        registry = read_schemas(self.settings)
        self._given_up = self._given_up.difference(registry)
        routing = Routing(self.branches, registry, given_up=self._given_up, settled=self._settled)
        query = RoutingQuery(self.spark, routing, self._place())
        try:
            self._watch(query, stop)
        finally:
            with contextlib.suppress(ProjectionError):  # of a query that is lost already, the first error counts
                query.stop()

    def _watch(self, query: RoutingQuery, stop: Event) -> None:
        began, before = time.monotonic(), query.last_batch()
        looked = began
        while not stop.wait(_POLL_SECONDS):
            if failure := query.failure():
                self._require_topics()
                raise failure
            now = time.monotonic()
            if now - looked > _LOOK_SECONDS:
                looked = now
                if self._is_outdated():
                    return
            if self._outwaiting.failures and (now - began > HEALTHY_SECONDS or query.last_batch() > before):
                self._outwaiting.recovered()

    def _is_outdated(self) -> bool:
        """Whether the query has to be started with more schemas; TopicMissing."""
        try:
            self._require_topics(deadline=_GLANCE_SECONDS)
            return self._have_come()
        except BrokerUnreachable as error:  # the query waits for its broker by itself
            log.warning("broker away, the query waits", topic=self.branches.topic, cause=error.message)
            return False

    def _require_topics(self, *, deadline: float = DEADLINE_SECONDS) -> None:
        with OffsetReader(self.settings, deadline=deadline) as reader:
            reader.partitions([self.branches.topic, *self.branches.topics.values(), self.branches.dead_letter_topic])

    def _place(self) -> QueryPlace:
        return QueryPlace(
            client=self.settings.kafka.jvm(),
            spark_checkpoint=self.checkpoint.spark,
            start=self.options.start,
            mode=self.mode,
            batch_seconds=self.options.batch_seconds,
        )

    def _learn(self, unknown: UnknownSchemaId, stop: Event) -> None:
        """Wait until the schema is registered, or give its id up: a failure, so that ever new ids come to an end.

        Given up with it is any unknown id that lay in the topic before the wait. Otherwise many ids, as in garbage,
        would cost a start each.
        """
        self._reload()
        topic = self.branches.topic
        log.info("unknown schema id, reading the registry", id=unknown.schema_id, place=unknown.place)
        ends = end_offsets(self.settings, [topic])[topic]
        until = time.monotonic() + self.options.schema_patience
        while unknown.schema_id not in read_schemas(self.settings):
            if time.monotonic() > until:
                self._given_up, self._settled = self._given_up | {unknown.schema_id}, ends
                log.warning("schema id stays unknown", id=unknown.schema_id, topic=topic, dead_letters_below=ends)
                raise unknown
            if stop.wait(_POLL_SECONDS):
                return
        log.info("schema learnt", id=unknown.schema_id, topic=topic)

    def _have_come(self) -> bool:
        """Whether a schema has come whose id was given up: the query has to be started with it."""
        come = self._given_up.intersection(read_schemas(self.settings)) if self._given_up else frozenset()
        if come:
            self._reload()
            log.info("schemas learnt after their ids were given up", ids=sorted(come), topic=self.branches.topic)
        return bool(come)

    def _reload(self) -> None:
        self.reloads += 1
        if self.metrics is not None:
            self.metrics.reloaded()


def router_outwaiting(branches: Branches, restarts: Restarts, metrics: RouterMetrics | None = None) -> Outwaiting:
    """What tries a router again, before it is open and later."""
    return Outwaiting(
        restarts,
        what="router",
        place=f"branches of {branches.topic}",
        gave_up=ProjectionError,
        goes_on="it goes on from its Spark checkpoint",
        passes=lambda error: isinstance(error, UnknownSchemaId) or passes(error),
        counted_by=metrics,
    )


@contextmanager
def open_router(
    settings: Settings,
    branches: Branches,
    *,
    checkpoints: str | Path,
    options: RouterOptions | None = None,
    jars: Sequence[Path] = (),
    master: str | None = None,
    memory: str = "1g",
    metrics: RouterMetrics | None = None,
) -> Iterator[Router]:
    """Create the branch topics, claim the checkpoint, and start a Spark session for the router alone.

    Args:
        settings: The settings of Kafka.
        branches: The branches.
        checkpoints: A folder that outlives the process. It holds one checkpoint for each topic.
        options: How the router runs.
        jars: The jars for Kafka and Avro, `factfold.stack.spark_jars()`. Leave them out if the cluster has them.
        master: The Spark master, by default as many local slots as the mode needs.
        memory: The heap of the driver.
        metrics: Counts for Prometheus.

    Returns:
        A router. `run(stop=…)` routes until the event is set, `counts()` counts records by branch, and `restarts`
        counts new starts.

    Raises:
        DefinitionChanged: The checkpoint belongs to other branches.
        RunAlreadyActive: Another router holds the checkpoint.
        FactfoldError: TopicMissing, TopicMismatch or BrokerUnreachable of Kafka, and ProjectionError of this
            machine.

    Examples:
        >>> with open_router(Settings(), payment_branches, checkpoints="/var/lib/shop", jars=spark_jars()) as router:
        ...     router.run(stop=stop)
    """
    from projections.spark.session import own_session  # needs the extra spark

    chosen = options or RouterOptions()
    partitions = source_partitions(settings, branches)
    place = f"branches of {branches.topic}"
    master = master or f"local[{slots_needed(partitions)}]"
    if chosen.mode == "real-time" and (slots := local_slots(master)) is not None:
        require_slots(slots, partitions, place=place)
    checkpoint = RouterCheckpoint.of(branches, checkpoints)
    with checkpoint.claimed(branches):
        make_topics(settings, branches, partitions=partitions)
        with own_session(jars, master=master, memory=memory, config=_SESSION) as spark:
            if chosen.mode == "real-time":
                require_slots(spark.sparkContext.defaultParallelism, partitions, place=place)
            yield Router(spark, settings, branches=branches, checkpoint=checkpoint, options=chosen, metrics=metrics)


def source_partitions(settings: Settings, branches: Branches) -> int:
    """How many partitions the event topic has; TopicMissing, BrokerUnreachable."""
    with OffsetReader(settings) as reader:
        return reader.partitions([branches.topic])[branches.topic]


def make_topics(settings: Settings, branches: Branches, *, partitions: int) -> None:
    """Make the branch topics and the dead-letter topic, so that every record keeps its partition."""
    routed = [branch_topic(topic, partitions=partitions) for topic in branches.topics.values()]
    try:
        ensure_topics(settings, [*routed, dead_letter_topic(branches.dead_letter_topic, partitions=partitions)])
    except TopicMismatch as mismatch:
        raise TopicMismatch(
            f"{mismatch.message}: its source {branches.topic!r} has {partitions}, and a record keeps its partition",
            remedy="if partitions were added to the source, add as many to this topic by the tools of Kafka",
            place=mismatch.place or branches.topic,
        ) from mismatch


def local_slots(master: str) -> int | None:
    """The slots in a local master's name, to refuse too few before Spark has started; else None."""
    match = re.fullmatch(r"local(?:\[(\d+)(?:,\d+)?\])?", master)
    return int(match.group(1) or 1) if match else None


def slots_needed(partitions: int) -> int:
    """One slot for each partition, which real-time mode holds all the time, and one for everything else."""
    return partitions + 1


def require_slots(slots: int, partitions: int, *, place: str) -> None:
    """Raise ProjectionError where real-time mode would leave partitions waiting."""
    if slots < slots_needed(partitions):
        raise ProjectionError(
            f"real-time mode needs {slots_needed(partitions)} slots for {partitions} partitions, "
            f"this Spark session has {slots}",
            remedy=f"use master local[{slots_needed(partitions)}] or a cluster with that many cores, in a process of "
            "its own, or mode micro-batch",
            place=place,
            code="too-few-slots",
        )


def branch_counts(settings: Settings, branches: Branches, *, deadline: float = DEADLINE_SECONDS) -> dict[str, int]:
    """Return the records ever written to each branch topic and the dead-letter topic, repeated ones included.

    Examples:
        >>> branch_counts(Settings(), payment_branches)
        {'suspicious': 12, 'validated': 488, 'dead-letter': 0}
    """
    topics = {**branches.topics, DEAD_LETTERS: branches.dead_letter_topic}
    with OffsetReader(settings, deadline=deadline) as reader:
        ends = reader.end_offsets(topics.values())
    return {name: sum(ends[topic].values()) for name, topic in topics.items()}


def branches_status(settings: Settings, branches: Branches, *, checkpoints: str | Path) -> BranchesStatus:
    """Compare the router's Spark checkpoint with the topic's ends. In real-time mode it moves once a batch.

    Raises TopicMissing or BrokerUnreachable.

    Returns:
        `topic`, `lag` in offsets (None before the first batch has ended) and `counts` by branch topic.

    Examples:
        >>> status = branches_status(Settings(), payment_branches, checkpoints="/var/lib/shop")
        >>> status.lag, status.counts["suspicious"]
        (0, 12)
    """
    committed = RouterCheckpoint.of(branches, checkpoints).committed()
    behind = offsets_behind(settings, branches.topic, committed or {})  # asked anyway: the topic may be missing
    lag = None if committed is None else behind
    return BranchesStatus(branches.topic, lag, branch_counts(settings, branches))


class RouterMetrics(RunnerMetrics):
    """The metrics of one router, for `open_router`.

    Args:
        topic: The topic that is routed.

    Examples:
        >>> metrics = RouterMetrics("payment")
        >>> look = lambda: metrics.standing(branches_status(settings, payment_branches, checkpoints=folder))
        >>> with serve_metrics(metrics, port=9464), refreshing(metrics, look):
        ...     with open_router(settings, payment_branches, checkpoints=folder, jars=jars, metrics=metrics) as router:
        ...         router.run(stop=stop)
    """

    families: ClassVar[tuple[Family, ...]] = (*RUNNER, RECORDS, LAG, RELOADS)

    def __init__(self, topic: str) -> None:
        super().__init__("branches", topic, topic=topic)

    def reloaded(self) -> None:
        """Count a start for new schemas."""
        self.count(RELOADS)

    def standing(self, status: BranchesStatus) -> None:
        """Note how far the router has come and what its branches hold."""
        if status.lag is not None:
            self.set(LAG, status.lag)
        for branch, records in status.counts.items():
            self.raise_to(RECORDS, records, branch=branch)


@dataclass(frozen=True)
class BranchesStatus:
    """How far a topic's router is.

    Attributes:
        topic: The topic.
        lag: The offsets from the first record that waits to the end of the topic, 0 where no record waits. None before
            the first batch has ended.
        counts: The records written to each branch topic and the dead-letter topic.

    Examples:
        >>> branches_status(Settings(), payment_branches, checkpoints="/var/lib/shop").lag
        0
    """

    topic: str
    lag: int | None
    counts: Mapping[str, int]
