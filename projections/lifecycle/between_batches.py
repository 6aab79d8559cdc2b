"""What a serving run does between two batches: it looks at what others ask of it, and takes the steps that are due.

Others ask it to stand still, to wait for a cut-over, to end. Its steps let go of deleted and of old rows, and give out
final results.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
import structlog

from projections.declaring.group import ProjectionGroup, has_finals
from projections.environment import Environment
from projections.errors import OffsetsLost, ProjectionError, RunRetired
from projections.faults import FORGOTTEN, TIME_PREFIX
from projections.logs.offsets import reached
from projections.logs.set_aside import SetAside
from projections.stores import dialects, finals
from projections.stores.layout import GenerationLayout
from projections.stores.locks import REBUILDER
from projections.stores.runs import SERVING, Progress, Run, RunState, ViewColumns, replaced_topics

if TYPE_CHECKING:
    from projections.connections import Connections
    from projections.lifecycle.metrics import RunMetrics
    from projections.outputs.publishing import ViewPublisher
    from projections.stores.sql import TableStore


log = structlog.get_logger()
LOOK_AT_TOPICS_SECONDS: Final = 10.0  # between two looks while a run works: each asks the broker
_LOOK_AT_CLOCK_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 0.1  # at a time: a batch on a quiet topic takes two tenths
# Of a table, in a transaction: so few are looked up by their keys; of 5,000 PostgreSQL reads a state of a million rows.
STEP_ROWS: Final = 1_000
_LOOK_FOR_DELETED_SECONDS: Final = 60.0  # between two looks for rows that are due
_LOOK_FOR_OLD_SECONDS: Final = 10.0  # so many more seconds of rows stay

Rows = Mapping[str, int]


class Standing:
    """The standing of one serving run; a runner asks before each batch, and goes on holding the run meanwhile."""

    def __init__(self, store: TableStore, run: Run) -> None:
        self._store = store
        self._run = run
        self.paused = False

    def may_go_on(self) -> bool:
        """Whether the next batch may begin; raises RunRetired where the generation serves no more."""
        state = self._store.state(self._run)
        if state is None or state.status != SERVING:
            raise RunRetired(
                "this generation no longer serves: a cut-over or a rollback let another one serve",
                remedy="start the runner again with the definition that serves now (factfold projections run)",
                place=self._run.place,
            )
        self._tell(paused=state.paused)
        return not (state.paused or (state.held and self._is_cut_over()))

    def require_unpaused(self) -> None:
        """Raise ProjectionError if the run was paused at the last look: waiting for it would be in vain."""
        if self.paused:
            raise ProjectionError(
                "the run is paused, and does not catch up",
                remedy="run factfold projections resume",
                place=self._run.place,
                code="run-paused",
            )

    def _is_cut_over(self) -> bool:
        """A killed cut-over holds up no run: its lock is released, whatever the row says."""
        return self._store.is_held(self._run.group, role=REBUILDER)

    def _tell(self, *, paused: bool) -> None:
        if paused != self.paused:
            log.info("paused" if paused else "resumed", group=self._run.group, generation=self._run.generation)
        self.paused = paused


class KnownTopics:
    """The topics of a run, by the ids its generation has noted.

    A recreated topic has the offsets of the old one again, and may have more records by then than were applied:
    its length alone does not tell.
    """

    def __init__(self, environment: Connections, group: ProjectionGroup, state: RunState) -> None:
        self._log = environment.log
        self._topics = group.topics
        self._state = state
        self._next = 0.0

    def require(self) -> None:
        """Raise OffsetsLost where a topic is another one now; looks at most every ten seconds."""
        if time.monotonic() < self._next:
            return
        for topic in replaced_topics(self._state, self._log.topic_ids(self._topics)):
            raise OffsetsLost(
                "the topic was deleted and created again since the views were built",
                remedy="rebuild the projection: it reads the new one from its beginning",
                place=f"topic {topic}",
            )
        self._next = time.monotonic() + LOOK_AT_TOPICS_SECONDS

    def doubt(self) -> None:
        """Look the next time, however short ago the last look was."""
        self._next = 0.0


class Moments:
    """The newest time of the database's clock by which a run has applied all that was in its log.

    The run may let go of what is due by then.

    The clock is read before a batch, and before the ends of the log. A writer that never rests therefore holds up
    nothing: the batch goes to these ends, whatever comes behind them meanwhile.

    Attributes:
        passed: The time in microseconds since 1970, None before the first.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._next = 0.0
        self._waiting: tuple[int, Progress] | None = None
        self.passed: int | None = None

    def look(self, ends: Callable[[], Progress], *, at_once: bool = False) -> Progress:
        """Look at the log's ends. Read the clock before, if it is time to or `at_once`.

        The clock is not read while an earlier time is still waited for.
        """
        if self._waiting is not None or (time.monotonic() < self._next and not at_once):
            return ends()
        self._next = time.monotonic() + _LOOK_AT_CLOCK_SECONDS
        with self._store.looking() as connection:
            at = dialects.now(connection)
        self._waiting = at, ends()
        return self._waiting[1]

    def applied(self, progress: Progress) -> bool:
        """Say how far the run is. Return whether another time has passed."""
        if self._waiting is None or not reached(progress, self._waiting[1]):
            return False
        self.passed, self._waiting = self._waiting[0], None
        return True


@dataclass(frozen=True)
class Due:
    """What is due: by a time of `Moments`, which may have ``passed`` just now; some of it, or all ``to_the_end``."""

    at: int | None
    passed: bool
    to_the_end: bool


@dataclass(frozen=True)
class AfterBatch:
    """A step: what the log says of it, the rows that it takes, and what is done with their numbers."""

    happened: str
    take: Callable[[Due], Rows]
    count: Callable[[Rows], object]


def after_batches(
    environment: Environment,
    group: ProjectionGroup,
    run: Run,
    layout: Any,
    publisher: ViewPublisher | None,
    metrics: RunMetrics | None,
) -> Iterator[AfterBatch]:
    """The steps of a group's serving run, in the order in which they are taken."""
    store = environment.store
    if group.horizon is not None:
        horizon = Horizon(store, run, layout, keep=group.horizon)
        count = metrics.let_go if metrics else _uncounted
        yield AfterBatch("deleted rows let go of", lambda due: horizon.let_go(to_the_end=due.to_the_end), count)
    if group.retention is not None:
        old = Retaining(store, run, layout, group)
        count = metrics.forgot if metrics else _uncounted
        yield AfterBatch("rows forgotten", lambda due: old.forget(due.at, to_the_end=due.to_the_end), count)
    if has_finals(group.views):
        yield AfterBatch(
            "final results given out",
            lambda due: {} if due.at is None or not due.passed else give_out(store, run, layout, due.at),
            lambda rows: publisher.publish() if publisher else None,
        )


def _uncounted(rows: Rows) -> None:
    """Without metrics."""


class Horizon:
    """The deleted rows of one run; ``keep`` is how long they are known to be deleted."""

    def __init__(self, store: TableStore, run: Run, layout: Any, *, keep: timedelta) -> None:
        self._store = store
        self._run = run
        self._layout = layout
        self._keep = keep.total_seconds()
        self._next = 0.0

    def let_go(self, *, to_the_end: bool = False) -> Mapping[str, int]:
        """Let go of some, or `to_the_end`, where it is time to look for them; returns how many deletions, by table."""
        settled: Counter[str] = Counter()
        until = time.monotonic() + (math.inf if to_the_end else _MOST_SECONDS)
        while self._next <= time.monotonic() < until:
            counts = self._step()
            settled.update(counts)
            if all(count < STEP_ROWS for count in counts.values()):
                self._next = time.monotonic() + _LOOK_FOR_DELETED_SECONDS
        return settled

    def _step(self) -> Mapping[str, int]:
        before = int(time.time() - self._keep)
        return self._store.let_go(self._run, self._layout, before=before, most=STEP_ROWS)


class Retaining:
    """The rows of one serving run whose streams promise how late events may be."""

    def __init__(self, store: TableStore, run: Run, layout: Any, group: ProjectionGroup) -> None:
        assert group.retention is not None  # noqa: S101 - asked before
        self._store, self._behind = store, group.retention.behind
        self._run, self._layout = run, layout
        self._next, self._left = 0.0, True

    def forget(self, at: int | None, *, to_the_end: bool = False) -> Mapping[str, int]:
        """Forget some rows, where it is time to look or some are left, or `to_the_end`; returns how many, by table.

        The floor rises to a time of `Moments`. Of what comes later, the promises say how old it may be.
        """
        upto = None
        if to_the_end or self._next <= time.monotonic():
            self._next, self._left = time.monotonic() + _LOOK_FOR_OLD_SECONDS, True
            upto = None if at is None else at - self._behind
        return self._some(upto, math.inf if to_the_end else _MOST_SECONDS) if self._left else {}

    def _some(self, upto: int | None, seconds: float) -> Mapping[str, int]:
        forgotten: Counter[str] = Counter()
        until = time.monotonic() + seconds
        while self._left and (not forgotten or time.monotonic() < until):
            counts = self._store.forget(self._run, self._layout, upto=upto, most=STEP_ROWS)
            forgotten.update(counts)
            self._left, upto = any(count == STEP_ROWS for count in counts.values()), None
        return forgotten


def give_out(store: TableStore, run: Run, layout: GenerationLayout, at: int) -> Rows:
    """Give out the final results that are due by a time of `Moments`, by view."""
    with store.looking() as connection:
        if not finals.is_due(connection, layout, run, at=at):
            return {}
    with store.transaction() as connection:
        return finals.give_out(connection, layout, run, at=at)


def forgotten_by_serving(environment: Environment, group: ProjectionGroup, columns: ViewColumns) -> SetAside:
    """What the serving generation of this definition has set aside as forgotten: others are made without it too.

    Their rows were forgotten when they came. Another generation may still have such rows.
    """
    store, forgotten = environment.store, SetAside.nothing()
    for state in store.states(group.name, SERVING) if group.retention is not None else ():
        if state.run.fingerprint == group.fingerprint():
            forgotten |= environment.keeper.noted(state, store.layout(group, state.run, columns)).of_kind(FORGOTTEN)
    # What is noted is the message of each, which ends with its detail.
    detail = pc.replace_substring_regex(forgotten.faults["detail"], pattern=f"^.*{TIME_PREFIX}", replacement="")
    return SetAside(forgotten.faults.set_column(forgotten.faults.schema.get_field_index("detail"), "detail", detail))


def moments_of(environment: Environment, group: ProjectionGroup) -> Moments | None:
    """The times of a group that lets go of rows by the clock; None for others."""
    return Moments(environment.store) if group.retention or has_finals(group.views) else None
