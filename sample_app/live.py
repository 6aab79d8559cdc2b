"""A projection runner in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from projections import BatchReport, Environment, ProjectionGroup, Runner, open_runner
from projections.logs.offsets import reached
from sample_app.background import Background, wait_until


class LiveViews:
    """A group's views under a running runner, with the reports of the batches so far."""

    def __init__(self, environment: Environment, group: ProjectionGroup, runner: Runner) -> None:
        self._environment, self._group, self._runner = environment, group, runner
        self.batches: list[BatchReport] = []
        self.background = Background(lambda stop: runner.run(stop=stop, on_batch=self.batches.append), name=group.name)

    def wait_until_caught_up(self, *, deadline: float = 300.0) -> None:
        """Wait until the views hold everything that is in the topics now."""
        with self._environment.log.open() as log:
            goal = log.end_offsets(list(self._group.topics))

        def caught_up() -> bool:
            self.background.require_health()
            return reached(self._runner.progress, goal)

        wait_until(caught_up, deadline=deadline, what=f"the views of {self._group.name} caught up")


@contextmanager
def live_views(environment: Environment, group: ProjectionGroup) -> Iterator[LiveViews]:
    """Keep a group's views up to date for as long as the block lasts, and to the topics' ends after it."""
    with open_runner(environment, group) as runner:
        run = LiveViews(environment, group, runner)
        with run.background.running():
            yield run
        run.batches += runner.catch_up()
