"""The shop's other services: subscribers in threads of their own, commands in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from eventstore import Settings, Subscription, run_subscription
from eventstore.delivery.attempt import DeliveryReport
from sample_app.background import Background


class RunningSubscription:
    """A subscription that is being delivered; ``report`` counts as it goes."""

    def __init__(self, subscription: Subscription[..., Any], *, settings: Settings, engine: sa.Engine) -> None:
        self.group = subscription.group
        self.report = DeliveryReport()
        self.background = Background(
            lambda stop: run_subscription(
                subscription, stop=stop, settings=settings, engine=engine, on_batch=self.report.add
            ),
            name=subscription.group,
        )


@contextmanager
def delivered(
    subscriptions: Sequence[Subscription[..., Any]], *, settings: Settings, engine: sa.Engine
) -> Iterator[list[RunningSubscription]]:
    """Deliver several subscriptions of one service for as long as the block lasts."""
    running = [RunningSubscription(s, settings=settings, engine=engine) for s in subscriptions]
    with ExitStack() as stack:
        for one in running:
            stack.enter_context(one.background.running())
        yield running


@dataclass(frozen=True)
class RunningCommand:
    """A `factfold` command in another process."""

    words: str
    process: subprocess.Popen[bytes]
    log: Path

    def require_running(self) -> None:
        """Raise RuntimeError if it has ended by itself."""
        if self.process.poll() is not None:
            raise RuntimeError(f"factfold {self.words} ended with exit code {self.process.returncode}: see {self.log}")


@contextmanager
def running_command(words: str, environment: Mapping[str, str], *, log: Path) -> Iterator[RunningCommand]:
    """Run a `factfold` command in another process until the block ends; RuntimeError if it ended before."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "factfold", *words.split()]
    with log.open("wb") as said:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=said, stderr=subprocess.STDOUT)  # noqa: S603
        running = RunningCommand(words, process, log)
        try:
            yield running
            running.require_running()
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def router_process(settings: Settings, definition: str, *, log: Path) -> Iterator[Callable[[], None]]:
    """Run `factfold branches run` in another process, with an empty checkpoint folder, until the block ends.

    Yields a function that raises RuntimeError if the router has ended by itself.
    """
    with TemporaryDirectory(prefix="factfold-router-") as folder:
        own = {**of_broker(settings), "FACTFOLD_CHECKPOINTS": folder}
        with running_command(f"branches run {definition}", own, log=log) as running:
            yield running.require_running


def of_broker(settings: Settings) -> dict[str, str]:
    """The variable that names a broker to a command."""
    return {"FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers}
