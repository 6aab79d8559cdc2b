"""`factfold branches`: run, status."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import eventstore
import projections
from eventstore import Restarts
from eventstore.errors import BrokerUnreachable
from factfold import on_demand
from factfold.cli.definitions import load_definition
from factfold.cli.options import Commands, Memory, definition, option, setting
from factfold.cli.running import Running, reached_settings, stop_on_signal
from factfold.cli.show import Out
from factfold.stack import spark_jars

if TYPE_CHECKING:
    from projections.branching.router import Router

app = Commands("Branches: put each record of a topic into exactly one topic.")

Definition = Annotated[str, definition("The branches, as module:name.", "branches", metavar="MODULE:NAME")]
Checkpoints = Annotated[Path, setting("--checkpoints", "Folder of the routers' Spark checkpoints.")]


class Mode(StrEnum):
    """How Spark runs the router."""

    REAL_TIME = "real-time"
    MICRO_BATCH = "micro-batch"


class Start(StrEnum):
    """Where a router begins that has no Spark checkpoint yet."""

    BEGINNING = "beginning"
    END = "end"


@app.command()
def run(
    named: Definition,
    checkpoints: Checkpoints,
    running: Running,
    out: Out,
    mode: Annotated[Mode, option("--mode", "micro-batch needs fewer slots.")] = Mode.REAL_TIME,
    start: Annotated[Start, option("--start", "Where the very first start begins.")] = Start.BEGINNING,
    batch_seconds: Annotated[
        int | None, option("--batch-seconds", "How long a batch of real-time mode lasts.", min=5)
    ] = None,
    master: Annotated[str | None, setting("--spark-master", "Default: enough local slots.")] = None,
    memory: Memory = "1g",
) -> None:
    """Route the topic's records until a signal comes. Killed, it goes on from its Spark checkpoint."""
    branches, stop = load_branches(named), stop_on_signal()
    settings = reached_settings(without_kafka="factfold up evaluates branches in the event store")
    options = projections.RouterOptions(mode=mode.value, start=start.value, restarts=Restarts(limit=running.restarts))
    if batch_seconds is not None:
        options = dataclasses.replace(options, batch_seconds=batch_seconds)

    def look(metrics: projections.RouterMetrics) -> None:
        metrics.standing(projections.branches_status(eventstore.Settings(), branches, checkpoints=checkpoints))

    with ExitStack() as opened:
        metrics = opened.enter_context(running.metrics(lambda: projections.RouterMetrics(branches.topic), look))

        def opening() -> Router:
            return opened.enter_context(projections.open_router(
                settings, branches, checkpoints=checkpoints, options=options, jars=spark_jars(), master=master,
                memory=memory, metrics=metrics,
            ))  # fmt: skip

        router = on_demand.router_outwaiting(branches, options.restarts, metrics).once(opening, stop=stop)
        if router is None:
            return
        stop_on_signal(stop)
        out.state("routing", f"routing {branches.topic}")
        router.run(stop=stop)
        counts = _counted(router)
        more = {"restarts": router.restarts, "reloads": router.reloads, "mode": router.mode}
        out.show({"counts": counts, **more}, _count_lines(counts))


@app.command()
def status(named: Definition, checkpoints: Checkpoints, out: Out) -> None:
    """Show how far the router has come and how many records each branch holds."""
    branches = load_branches(named)
    settings = reached_settings(without_kafka="there is no router: subscriptions evaluate branches themselves")
    status = projections.branches_status(settings, branches, checkpoints=checkpoints)
    behind = "no batch has ended yet" if status.lag is None else f"{status.lag:,} offsets behind"
    fields = {"counts": status.counts, "topic": status.topic, "lag": status.lag}
    out.show(fields, [f"{status.topic}: {behind}", *_count_lines(status.counts)])


def load_branches(spec: str) -> on_demand.Branches:
    """The branches that `module:name` names; DeclarationError says which half is wrong."""
    return load_definition(
        spec, on_demand.Branches, what="definition of branches", example="shop.payments:payment_branches"
    )


def _counted(router: Router) -> Mapping[str, int] | None:
    """What the branches hold; None while the broker is away, for which a stop does not wait."""
    try:
        return router.counts()
    except BrokerUnreachable:
        return None


def _count_lines(counts: Mapping[str, int] | None) -> Iterator[str]:
    if counts is None:
        yield "the broker is away, and counts no records of the branches"
    else:
        yield from (f"{name}: {count:,} records" for name, count in counts.items())
