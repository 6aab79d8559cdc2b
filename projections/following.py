"""Following a group over its generations: after a cut-over the runner goes on with the one that serves now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import stamina
import structlog

from projections.environment import Environment
from projections.errors import RunAlreadyActive, RunRetired
from projections.group import ProjectionGroup
from projections.runner import Runner, RunnerOptions, open_runner

if TYPE_CHECKING:
    from projections.metrics import RunMetrics

# Who has cut over holds the new generation until its own runner is closed, some milliseconds or a busy second later.
_PATIENCE: Final = 30.0

log = structlog.get_logger()


def follow(
    environment: Environment,
    group: ProjectionGroup,
    work: Callable[[Runner], None],
    *,
    options: RunnerOptions | None = None,
    metrics: RunMetrics | None = None,
) -> None:
    """Give ``work`` a runner of the serving generation, and after each cut-over one of the next, until it returns.

    Raises what `open_runner` and ``work`` raise; DefinitionChanged where another definition serves now.
    """
    attempts = 1
    while True:
        try:
            opened = partial(open_runner, environment, group, options=options, metrics=metrics)
            with _opened(opened, attempts=attempts) as runner:
                work(runner)
                return
        except RunRetired as cause:
            log.info("moving on to the generation that serves now", group=group.name, from_=cause.place)
        attempts = 1_000


@contextmanager
def _opened(open_next: Callable[[], AbstractContextManager[Runner]], *, attempts: int) -> Iterator[Runner]:
    with ExitStack() as opened:
        for attempt in stamina.retry_context(
            on=RunAlreadyActive, attempts=attempts, timeout=_PATIENCE, wait_initial=0.05, wait_max=0.5
        ):
            with attempt:
                runner = opened.enter_context(open_next())
        yield runner
