"""Metrics of `factfold watch run`: a store, dead letters and views, whether their runners run or not.

One look at each thing that `factfold watch run` was given: a store, Kafka's dead-letter topics, views.

Results of commands that end, as files for Prometheus: verify and compare.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import projections
from eventstore.backends.sql.changes import newest_events, scheduled_standing, stored_letters
from eventstore.backends.sql.values import in_utc
from eventstore.metrics import write_metrics
from eventstore.metrics.families import RUNNER, Family, Metrics, RunnerMetrics, gauge
from eventstore.processes.administration import Processes
from eventstore.topics import DEAD_LETTERS, settled_topic
from factfold import on_demand
from projections.declaring.group import ERASURES
from projections.letter_homes import HomeKind

if TYPE_CHECKING:
    from cdc.changes.change_records import Lookup
    from cdc.comparing.report import TableComparison
    from eventstore import Settings, SqlEventStore
    from eventstore.processes.administration import ProcessCount
    from eventstore.store import Category, FenceStatus
    from projections import ViewVerdict
    from projections.logs.port import OpenLog
    from projections.stores.runs import RunState
    from projections.stores.sql import TableStore

_Value = TypeVar("_Value")


FENCE_AGE: Final = gauge(
    "store_fence_age_seconds", "Seconds since the oldest transaction began that may still append, 0 without one.",
    "store",
)  # fmt: skip
FENCE_EVENTS: Final = gauge(
    "store_fence_events", "Committed events that readers do not see until that transaction ends.", "store"
)
NEWEST: Final = gauge(
    "store_newest_event_timestamp_seconds", "When the newest visible event of a category was appended.",
    "store", "category", "topic",
)  # fmt: skip
INSTANCES: Final = gauge(
    "process_instances", "Instances of a process by status.", "store", "process", "status"
)  # fmt: skip
TROUBLED: Final = gauge(
    "process_troubled_instances", "Instances of a process with a problem that needs you.", "store", "process"
)
OVERDUE: Final = gauge(
    "scheduled_overdue_seconds", "Seconds since the oldest scheduled command or timer was due, 0 if none is.", "store"
)
SET_ASIDE: Final = gauge(
    "scheduled_set_aside", "Scheduled commands and timers that failed too often and wait for a retry.", "store"
)
LETTERS: Final = gauge(
    "dead_letters_open", "Dead letters that are neither replayed nor discarded. Home is a topic, a database or views.",
    "home", "topic", "group",
)  # fmt: skip
LAG: Final = gauge(
    "view_lag_offsets", "Offsets of a topic that the serving generation of a group has not applied.", "group", "topic"
)
APPLIED: Final = gauge(
    "view_applied_commit_timestamp_seconds",
    "When the newest record that a group has applied was committed at its source: freshness is time() minus this.",
    "group", "topic",
)  # fmt: skip
STORED: Final = gauge(
    "view_progress_timestamp_seconds", "When the serving generation of a group last committed a batch.", "group"
)
PAUSED: Final = gauge("view_is_paused", "1 if the serving generation of a group is paused, or 0.", "group")
GENERATION: Final = gauge("view_generation", "The number of the generation that serves.", "group")


class WatchMetrics(RunnerMetrics):
    """The metrics of `factfold watch run`."""

    families: ClassVar[tuple[Family, ...]] = (
        *RUNNER, FENCE_AGE, FENCE_EVENTS, NEWEST, INSTANCES, TROUBLED, OVERDUE, SET_ASIDE, LETTERS, LAG, APPLIED,
        STORED, PAUSED, GENERATION,
    )  # fmt: skip

    def __init__(self, name: str = "watch") -> None:
        super().__init__("watch", name)

    def fence(self, store: str, fence: FenceStatus) -> None:
        """Show what readers wait for. An age that this user may not know is not shown."""
        self.replace(FENCE_AGE, [] if fence.age is None else [({"store": store}, fence.age)])
        self.set(FENCE_EVENTS, fence.waiting, store=store)

    def newest_events(self, store: str, moments: Mapping[Category, datetime]) -> None:
        """Show when each category's newest event was appended."""
        self.replace(NEWEST, [({"store": store, "category": one.name, "topic": one.topic}, moment.timestamp())
                              for one, moment in moments.items()])  # fmt: skip

    def scheduled(self, store: str, *, overdue: float, set_aside: int) -> None:
        """Show what is overdue of scheduled commands and timers, and what waits for a retry by hand."""
        self.set(OVERDUE, overdue, store=store)
        self.set(SET_ASIDE, set_aside, store=store)

    def processes(self, store: str, counts: Iterable[ProcessCount]) -> None:
        """Show how many instances of each process have which status, and how many a problem."""
        each, troubled = list(counts), dict[str, int]()
        for one in each:
            troubled[one.process] = troubled.get(one.process, 0) + one.troubled
        self.replace(INSTANCES, [({"store": store, "process": one.process, "status": one.status}, one.instances)
                                 for one in each])  # fmt: skip
        self.replace(TROUBLED, [({"store": store, "process": name}, count) for name, count in troubled.items()])

    def letters(self, open_letters: Mapping[tuple[str, str, str], int]) -> None:
        """Show the open dead letters by home, topic and group."""
        labels = ("home", "topic", "group")
        self.replace(LETTERS, [(dict(zip(labels, place, strict=True)), count) for place, count in open_letters.items()])

    def views(self, serving: Sequence[RunState]) -> None:
        """Show which generation of each group serves, and when it last moved."""
        groups = [({"group": state.run.group}, state) for state in serving]
        self.replace(GENERATION, [(labels, state.run.generation) for labels, state in groups])
        self.replace(PAUSED, [(labels, float(state.paused)) for labels, state in groups])
        moved = [(labels, state.updated_at) for labels, state in groups]
        self.replace(STORED, [(labels, in_utc(moment).timestamp()) for labels, moment in moved if moment])

    def progress(self, lags: Mapping[str, Mapping[str, int]], commits: Mapping[str, Mapping[str, datetime]]) -> None:
        """Show what waits for each group by topic, and how new its newest applied record is."""
        self.replace(LAG, _by_topic(lags))
        self.replace(APPLIED, [(labels, moment.timestamp()) for labels, moment in _by_topic(commits)])


def _by_topic(values: Mapping[str, Mapping[str, _Value]]) -> list[tuple[dict[str, str], _Value]]:
    return [({"group": group, "topic": topic}, one) for group, each in values.items() for topic, one in each.items()]


def look_at_store(metrics: WatchMetrics, store: SqlEventStore) -> None:
    """Show fence, newest events, processes and scheduled commands of a store."""
    name = store.tables.schema or store.engine.url.database or "store"
    metrics.fence(name, store.fence())
    metrics.newest_events(name, newest_events(store))
    standing = scheduled_standing(store)
    metrics.processes(name, Processes(store).stats())
    metrics.scheduled(name, overdue=standing.overdue, set_aside=standing.set_aside)


class Letters:
    """Open dead letters. Each look is of one kind of home, and leaves what is known of the others."""

    def __init__(self, metrics: WatchMetrics) -> None:
        self._metrics = metrics
        self._read: dict[str, tuple[object, int]] = {}
        self._open: dict[HomeKind, Mapping[tuple[str, str, str], int]] = {}

    def _show(self, kind: HomeKind, counts: Mapping[tuple[str, str, str], int]) -> None:
        self._open[kind] = counts
        self._metrics.letters({place: count for each in self._open.values() for place, count in each.items()})

    def look_at_store(self, store: SqlEventStore) -> None:
        """Show those of the subscriptions that read a store in its database."""
        counts, home = stored_letters(store.engine), store.engine.url.database or "store"
        self._show(HomeKind.INBOX, {(home, topic, group): count for (topic, group), count in counts.items()})

    def look_at_views(self, store: TableStore) -> None:
        """Show the records that projections have set aside."""
        places = on_demand.set_aside_places(store)
        self._show(HomeKind.VIEWS, {("views", *place): _open_letters(store, *place) for place in places})

    def look_at_topics(self, settings: Settings) -> None:
        """Show those of Kafka's topics. A topic is read again if it has grown."""
        with on_demand.OffsetReader(settings) as reader:
            names = set(reader.names())
            homes = sorted(name for name in names if name.endswith(f".{DEAD_LETTERS}"))
            settled = {name: settled_topic(name).name for name in homes}
            ends = reader.end_offsets([*homes, *(names & set(settled.values()))]) if homes else {}
        counts = {}
        for name in homes:
            standing = ends[name], ends.get(settled[name])
            if name not in self._read or self._read[name][0] != standing:
                self._read[name] = standing, _open_letters(settings, *_topic_and_group(name, names))
            counts[(name, *_topic_and_group(name, names))] = self._read[name][1]
        self._show(HomeKind.TOPIC, counts)


def _open_letters(at: Settings | TableStore, topic: str, group: str) -> int:
    with projections.letters(at, topic, group=group or None) as letters:
        return sum(1 for _ in letters.open())


def _topic_and_group(name: str, names: Collection[str]) -> tuple[str, str]:
    """Topic and group by the name `<topic>.<group>.dead-letter`, of which the topic is the longest that exists.

    A branch's letters have no group.
    """
    owner = name.rpartition(".")[0]
    topics = [topic for topic in names if f"{owner}.".startswith(f"{topic}.")]
    topic = max(topics, key=len, default=owner.rpartition(".")[0] or owner)
    return topic, owner[len(topic) + 1 :]


def look_at_views(
    metrics: WatchMetrics,
    store: TableStore,
    open_log: Callable[[], Any] | None,
    *,
    schemas: Lookup | None = None,
) -> None:
    """Show of each group which generation serves, and by the log what it lacks and how fresh it is."""
    serving = store.states(None, "serving")
    metrics.views(serving)
    if open_log is None:
        return
    with open_log() as log:
        lags = {state.run.group: _lag(log, state) for state in serving}
        commits = {
            state.run.group: on_demand.applied_commits(log, state.progress, schemas=schemas) for state in serving
        }
    metrics.progress(lags, commits)


def _lag(log: OpenLog, state: RunState) -> dict[str, int]:
    topics = [topic for topic in state.progress if topic != ERASURES]
    waiting = on_demand.waiting_offsets(state.progress, log.end_offsets(topics)) if topics else {}
    return {topic: waiting.get(topic, 0) for topic in topics}


VIEW_EQUAL: Final = gauge(
    "verify_is_equal", "1 if the last verification found a view equal to its recomputation, or 0.", "group", "view"
)
VIEW_ROWS: Final = gauge("verify_rows", "Rows of a view that were verified.", "group", "view")
VERIFIED: Final = gauge("verify_timestamp_seconds", "When the last verification of a group ended.", "group")
VERIFY_SECONDS: Final = gauge("verify_duration_seconds", "Seconds that it took.", "group")
TABLE_EQUAL: Final = gauge(
    "compare_is_equal", "1 if the last comparison found a captured table equal to its state, or 0.", "table", "state"
)
TABLE_KEYS: Final = gauge(
    "compare_differing_keys", "Keys that are missing, extra or different, after a repair if there was one.",
    "table", "state",
)  # fmt: skip
COMPARED: Final = gauge("compare_timestamp_seconds", "When the last comparison of a table ended.", "table", "state")


class VerifyMetrics(Metrics):
    """The result of a verification."""

    families: ClassVar[tuple[Family, ...]] = (VIEW_EQUAL, VIEW_ROWS, VERIFIED, VERIFY_SECONDS)

    def write(self, path: str, group: str, verdicts: Mapping[str, ViewVerdict], *, seconds: float) -> None:
        """Write the verdict on each view."""
        for view, verdict in verdicts.items():
            self.set(VIEW_EQUAL, float(verdict.equal), group=group, view=view)
            self.set(VIEW_ROWS, verdict.rows, group=group, view=view)
        self.set(VERIFIED, time.time(), group=group)
        self.set(VERIFY_SECONDS, seconds, group=group)
        write_metrics(self, path)


class CompareMetrics(Metrics):
    """The result of a comparison with the source."""

    families: ClassVar[tuple[Family, ...]] = (TABLE_EQUAL, TABLE_KEYS, COMPARED)

    def write(self, path: str, comparisons: Sequence[TableComparison]) -> None:
        """Write the result of each table that a state is made from."""
        for one in comparisons:
            if one.is_compared:
                labels = {"table": one.table, "state": one.state}
                differing = len({*one.missing, *one.extra, *one.differing, *one.changing})
                self.set(TABLE_EQUAL, float(one.equal), **labels)
                self.set(TABLE_KEYS, differing, **labels)
                self.set(COMPARED, time.time(), **labels)
        write_metrics(self, path)
