"""Metrics of `factfold watch run`: a store, dead letters and views, whether their runners run or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from eventstore.backends.sql.utc_times import in_utc
from eventstore.metrics.families import RUNNER, Family, RunnerMetrics, gauge

if TYPE_CHECKING:
    from eventstore.processes.administration import ProcessCount
    from eventstore.store import Category, FenceStatus
    from projections.stores.runs import RunState

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
    "dead_letters_open", "Dead letters that are neither replayed nor discarded. Home is their topic or database.",
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
