"""What others ask of a serving run, looked up between two batches: to stand still, to wait for a cut-over, to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from projections.errors import OffsetsLost, ProjectionError, RunRetired
from projections.logs.offsets import reached
from projections.stores import finals
from projections.stores.roles import REBUILDER
from projections.stores.runs import SERVING, Progress, Run, RunState, replaced_topics

if TYPE_CHECKING:
    from projections.connections import Connections
    from projections.declaring.group import ProjectionGroup
    from projections.stores.roles import Transactions
    from projections.stores.sql import TableStore

log = structlog.get_logger()
LOOK_AT_TOPICS_SECONDS: Final = 10.0  # between two looks while a run works: each asks the broker
_LOOK_AT_CLOCK_SECONDS: Final = 0.5


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

    def __init__(self, store: Transactions) -> None:
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
            at = finals.now(connection)
        self._waiting = at, ends()
        return self._waiting[1]

    def applied(self, progress: Progress) -> bool:
        """Say how far the run is. Return whether another time has passed."""
        if self._waiting is None or not reached(progress, self._waiting[1]):
            return False
        self.passed, self._waiting = self._waiting[0], None
        return True
