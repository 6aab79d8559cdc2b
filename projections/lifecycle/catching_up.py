"""Live catch-up: a generation that does not serve is brought to where another one stands, by a runner of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack

from eventstore.closing import Closing
from projections.declaring.group import ProjectionGroup
from projections.environment import Environment
from projections.lifecycle.runner import Runner, open_runner
from projections.logs.offsets import reached
from projections.stores.runs import Progress, Run, RunState, replaced_topics


class CatchUp(Closing):
    """Opens a runner once there is something to apply: its first batch plans every query, which takes seconds."""

    def __init__(self, environment: Environment, group: ProjectionGroup, run: Run) -> None:
        self._environment = environment
        self._group = group
        self._run = run
        self._opened = ExitStack()
        self._runner: Runner | None = None

    @property
    def run(self) -> Run:
        """The run, with the token of its current writer."""
        return self._runner.held if self._runner else self._run

    @property
    def progress(self) -> Progress:
        """How far it has come."""
        return self._runner.progress if self._runner else self._environment.store.progress(self._run)

    def bring_to(self, goal: Progress) -> bool:
        """Apply batches up to ``goal`` and none beyond; returns False where whole transactions end before it."""
        while not self._is_at(goal):
            if self._open().run_once(ends=_joined(self.progress, goal)) is None:
                return False
        return True

    def bring_beyond(self, goal: Progress, *, deadline: float = math.inf) -> None:
        """Apply batches until ``goal`` is reached, the last one up to the ends of the topics; ProjectionError."""
        if not self._is_at(goal):
            self._open().catch_up(self._relevant(goal), deadline=deadline)

    def close(self) -> None:
        """Let the generation go."""
        self._opened.close()

    def _is_at(self, goal: Progress) -> bool:
        return reached(self.progress, self._relevant(goal))

    def _relevant(self, goal: Progress) -> Progress:
        return {topic: parts for topic, parts in goal.items() if topic in self._group.inputs}

    def _open(self) -> Runner:
        if self._runner is None:
            opened = open_runner(self._environment, self._group, generation=self._run.generation)
            self._runner = self._opened.enter_context(opened)
        return self._runner


def _joined(progress: Progress, goal: Progress) -> Progress:
    """The further of two offsets, in every partition of the first."""
    return {t: {p: max(o, goal.get(t, {}).get(p, o)) for p, o in parts.items()} for t, parts in progress.items()}


def was_recreated(
    environment: Environment, group: ProjectionGroup, state: RunState, ids: Mapping[str, str] | None = None
) -> Progress:
    """The progress of a run in topics that were recreated, or in partitions that end before: no run reaches it again.

    The ends are asked for after the progress was read, so a run that reads on meanwhile is not taken for one of them.
    ``ids`` are those of the topics, where they were asked for already.
    """
    others = replaced_topics(state, environment.log.topic_ids(group.topics) if ids is None else ids)
    with environment.log.open() as log:
        ends = log.end_offsets(list(group.inputs))
    replaced = {
        topic: {p: o for p, o in parts.items() if topic in others or o > ends[topic].get(p, 0)}
        for topic, parts in state.progress.items()
        if topic in ends
    }
    return {topic: parts for topic, parts in replaced.items() if parts}
