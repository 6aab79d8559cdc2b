"""One look at each thing that `factfold watch run` was given: a store, Kafka's dead-letter topics, views."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import projections
from eventstore.backends.sql.changes import newest_events, scheduled_standing, stored_letters
from eventstore.processes.administration import Processes
from eventstore.topics import DEAD_LETTERS, settled_topic
from factfold import on_demand
from factfold.watching.metrics import WatchMetrics
from projections.declaring.group import ERASURES

if TYPE_CHECKING:
    from cdc.changes.change_records import Lookup
    from eventstore import Settings, SqlEventStore
    from projections.logs.port import OpenLog
    from projections.stores.runs import RunState
    from projections.stores.sql import TableStore


def look_at_store(metrics: WatchMetrics, store: SqlEventStore) -> None:
    """Show fence, newest events, processes and scheduled commands of a store."""
    name = store.tables.schema or store.engine.url.database or "store"
    metrics.fence(name, store.fence())
    metrics.newest_events(name, newest_events(store))
    standing = scheduled_standing(store)
    metrics.processes(name, Processes(store).stats())
    metrics.scheduled(name, overdue=standing.overdue, set_aside=standing.set_aside)


class Letters:
    """Open dead letters of Kafka's topics and of a store. A topic is read again if it has grown."""

    def __init__(self, settings: Settings | None, store: SqlEventStore | None) -> None:
        self._settings, self._store = settings, store
        self._read: dict[str, tuple[object, int]] = {}

    def look(self, metrics: WatchMetrics) -> None:
        """Show how many are open."""
        metrics.letters({**self._of_store(), **self._of_topics()})

    def _of_store(self) -> Mapping[tuple[str, str, str], int]:
        if self._store is None:
            return {}
        counts, home = stored_letters(self._store.engine), self._store.engine.url.database or "store"
        return {(home, topic, group): count for (topic, group), count in counts.items()}

    def _of_topics(self) -> Mapping[tuple[str, str, str], int]:
        if self._settings is None:
            return {}

        with on_demand.OffsetReader(self._settings) as reader:
            names = set(reader.names())
            homes = sorted(name for name in names if name.endswith(f".{DEAD_LETTERS}"))
            settled = {name: settled_topic(name).name for name in homes}
            ends = reader.end_offsets([*homes, *(names & set(settled.values()))]) if homes else {}
        counts = {}
        for name in homes:
            standing = ends[name], ends.get(settled[name])
            if name not in self._read or self._read[name][0] != standing:
                self._read[name] = standing, _open_letters(self._settings, *_topic_and_group(name, names))
            counts[(name, *_topic_and_group(name, names))] = self._read[name][1]
        return counts


def _open_letters(settings: Settings, topic: str, group: str) -> int:
    with projections.letters(settings, topic, group=group or None) as letters:
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
