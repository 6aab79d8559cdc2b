"""A projection runner in a thread of its own, as a service would have it in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from projections import Environment, ProjectionGroup, open_runner
from projections.spark.incremental import BatchReport


class BackgroundRun:
    """The reports of a runner's batches so far."""

    def __init__(self) -> None:
        self.batches: list[BatchReport] = []
        self.failure: BaseException | None = None


@contextmanager
def live_views(environment: Environment, group: ProjectionGroup) -> Iterator[BackgroundRun]:
    """Keep a group's views up to date for as long as the block lasts, and to the topics' ends after it."""
    run, stop = BackgroundRun(), threading.Event()
    with open_runner(environment, group) as runner:

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
