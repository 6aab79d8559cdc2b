"""Metrics of `factfold watch run`: a store, dead letters and views, whether their runners run or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from eventstore.processes.administration import ProcessCount
    from eventstore.store import FenceStatus


def _gauge(name: str, help: str, *labels: str) -> Family:
    return Family(f"factfold_{name}", Kind.GAUGE, help, labels)


FENCE_AGE: Final = _gauge(
    "store_fence_age_seconds", "Seconds since the oldest transaction began that may still append, 0 without one.",
    "store",
)  # fmt: skip
FENCE_EVENTS: Final = _gauge(
    "store_fence_events", "Committed events that readers do not see until that transaction ends.", "store"
)
NEWEST: Final = _gauge(
    "store_newest_event_timestamp_seconds", "When the newest visible event of a category was appended.",
    "store", "category", "topic",
)  # fmt: skip
INSTANCES: Final = _gauge(
    "process_instances", "Instances of a process by status.", "store", "process", "status"
)  # fmt: skip
TROUBLED: Final = _gauge(
    "process_troubled_instances", "Instances of a process with a problem that needs you.", "store", "process"
)
OVERDUE: Final = _gauge(
    "scheduled_overdue_seconds", "Seconds since the oldest scheduled command or timer was due, 0 if none is.", "store"
)
SET_ASIDE: Final = _gauge(
    "scheduled_set_aside", "Scheduled commands and timers that failed too often and wait for a retry.", "store"
)
LETTERS: Final = _gauge(
    "dead_letters_open", "Dead letters that are neither replayed nor discarded. Home is their topic or database.",
    "home", "topic", "group",
)  # fmt: skip
LAG: Final = _gauge(
    "view_lag_offsets", "Offsets of a topic that the serving generation of a group has not applied.", "group", "topic"
)
APPLIED: Final = _gauge(
    "view_applied_commit_timestamp_seconds",
    "When the newest record that a group has applied was committed at its source: freshness is time() minus this.",
    "group", "topic",
)  # fmt: skip
STORED: Final = _gauge(
    "view_progress_timestamp_seconds", "When the serving generation of a group last committed a batch.", "group"
)
PAUSED: Final = _gauge("view_is_paused", "1 if the serving generation of a group is paused, or 0.", "group")
GENERATION: Final = _gauge("view_generation", "The number of the generation that serves.", "group")


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
        if fence.age is not None:
            self.set(FENCE_AGE, fence.age, store=store)
        self.set(FENCE_EVENTS, fence.waiting, store=store)

    def newest_event(self, store: str, category: str, topic: str, moment: datetime) -> None:
        """Show when a category's newest event was appended."""
        self.set(NEWEST, moment.timestamp(), store=store, category=category, topic=topic)

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

    def view(self, group: str, *, generation: int, paused: bool, stored: datetime | None) -> None:
        """Show which generation of a group serves, and when it last moved."""
        self.set(GENERATION, generation, group=group)
        self.set(PAUSED, float(paused), group=group)
        if stored is not None:
            self.set(STORED, stored.timestamp(), group=group)

    def progress(self, group: str, lag: Mapping[str, int], commits: Mapping[str, datetime]) -> None:
        """Show what waits for a group by topic, and how new its newest applied record is."""
        for topic, offsets in lag.items():
            self.set(LAG, offsets, group=group, topic=topic)
        for topic, moment in commits.items():
            self.set(APPLIED, moment.timestamp(), group=group, topic=topic)
