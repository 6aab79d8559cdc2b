"""The shop's other services: subscribers in threads of their own, router and runner in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from eventstore import Settings, Subscription, run_subscription
from eventstore.delivery.attempt import DeliveryReport
from sample_app.background import Background
from sample_app.road import Road


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


@contextmanager
def router_process(settings: Settings, definition: str, *, log: Path) -> Iterator[Callable[[], None]]:
    """Run `factfold branches run` in another process, with an empty checkpoint folder, until the block ends.

    Yields a function that raises RuntimeError if the router has ended by itself.
    """
    with TemporaryDirectory(prefix="factfold-router-") as folder:
        with _process("branches", definition, settings, {"FACTFOLD_CHECKPOINTS": folder}, log=log) as require_running:
            yield require_running


@contextmanager
def runner_process(road: Road, definition: str, *, log: Path) -> Iterator[Callable[[], None]]:
    """Run `factfold projections run` in the same way."""
    views = {"FACTFOLD_VIEWS_URL": road.views_url}
    with _process("projections", definition, road.settings, views, log=log) as require_running:
        yield require_running


@contextmanager
def _process(
    commands: str, definition: str, settings: Settings, own: Mapping[str, str], *, log: Path
) -> Iterator[Callable[[], None]]:
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | own | {"FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers}
    command = [sys.executable, "-m", "factfold", commands, "run", definition]
    with log.open("wb") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)  # noqa: S603

        def require_running() -> None:
            if process.poll() is not None:
                raise RuntimeError(f"factfold {commands} run ended with exit code {process.returncode}: see {log}")

        try:
            yield require_running
            require_running()
        finally:
            process.terminate()
            process.wait(60)
