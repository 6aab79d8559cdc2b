"""A projection runner in a thread of its own, as a service would have it in a process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from eventstore.kafka.admin import end_offsets
from projections import Environment, ProjectionGroup, Runner, open_runner
from projections.runner import reached
from projections.spark.incremental import BatchReport


class BackgroundRun:
    """The reports of a runner's batches so far."""

    def __init__(self, environment: Environment, group: ProjectionGroup, runner: Runner) -> None:
        self._environment, self._group, self._runner = environment, group, runner
        self.batches: list[BatchReport] = []
        self.failure: BaseException | None = None

    def wait_until_caught_up(self, *, deadline: float = 300.0) -> None:
        """Wait until the views hold everything that is in the topics now."""
        goal = end_offsets(self._environment.settings, list(self._group.topics))
        until = time.monotonic() + deadline
        while not reached(self._runner.progress, goal):
            if self.failure:
                raise self.failure
            if time.monotonic() > until:
                raise TimeoutError(f"the views did not catch up within {deadline} s")
            time.sleep(0.02)


@contextmanager
def live_views(environment: Environment, group: ProjectionGroup) -> Iterator[BackgroundRun]:
    """Keep a group's views up to date for as long as the block lasts, and to the topics' ends after it."""
    stop = threading.Event()
    with open_runner(environment, group) as runner:
        run = BackgroundRun(environment, group, runner)

        def keep() -> None:
            try:
                runner.run(stop=stop, on_batch=run.batches.append)
            except BaseException as error:  # handed to the thread that asked for the run
                run.failure = error

        thread = threading.Thread(target=keep)
        thread.start()
        try:
            yield run
        finally:
            stop.set()
            thread.join()
        if run.failure:
            raise run.failure
        run.batches += runner.catch_up()
