"""`factfold branches`: run, status."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import eventstore
import projections
from eventstore import Restarts
from eventstore.errors import BrokerUnreachable
from factfold import on_demand
from factfold.cli.brokers import reached_settings
from factfold.cli.completions import completes
from factfold.cli.definitions import load_definition
from factfold.cli.logs import log_to_stderr
from factfold.cli.metrics import LOCAL, MetricsHost, MetricsPort, served_metrics
from factfold.cli.restarts import LIMIT, RestartLimit
from factfold.cli.shown_values import echo
from factfold.cli.signals import stop_on_signal
from factfold.cli.views.projections import Json, Memory
from factfold.stack import spark_jars

if TYPE_CHECKING:
    from projections import Branches, Router
    from projections.branching.metrics import RouterMetrics

app = typer.Typer(help="Branches: put each record of a topic into exactly one topic.", no_args_is_help=True)

Definition = Annotated[
    str,
    typer.Argument(help="The branches, as module:name.", metavar="MODULE:NAME", autocompletion=completes("branches")),
]
Checkpoints = Annotated[
    Path,
    typer.Option("--checkpoints", envvar="FACTFOLD_CHECKPOINTS", help="Folder of the routers' Spark checkpoints."),
]


class Mode(StrEnum):
    """How Spark runs the router."""

    REAL_TIME = "real-time"
    MICRO_BATCH = "micro-batch"


class Start(StrEnum):
    """Where a router begins that has no Spark checkpoint yet."""

    BEGINNING = "beginning"
    END = "end"


@app.callback()
def routers() -> None:
    """Branches: put each record of a topic into exactly one topic."""
    log_to_stderr()


@app.command()
def run(
    definition: Definition,
    checkpoints: Checkpoints,
    mode: Annotated[Mode, typer.Option("--mode", help="micro-batch needs fewer slots.")] = Mode.REAL_TIME,
    start: Annotated[Start, typer.Option("--start", help="Where the very first start begins.")] = Start.BEGINNING,
    batch_seconds: Annotated[
        int | None, typer.Option("--batch-seconds", min=5, help="How long a batch of real-time mode lasts.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--spark-master", envvar="FACTFOLD_SPARK_MASTER", help="Default: enough local slots."),
    ] = None,
    memory: Memory = "1g",
    restarts: RestartLimit = LIMIT,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    as_json: Json = False,
) -> None:
    """Route the topic's records until a signal comes. Killed, it goes on from its Spark checkpoint."""
    branches, stop = load_branches(definition), stop_on_signal()
    settings = reached_settings(without_kafka="factfold up evaluates branches in the event store")
    options = projections.RouterOptions(mode=mode.value, start=start.value, restarts=Restarts(limit=restarts))
    if batch_seconds is not None:
        options = dataclasses.replace(options, batch_seconds=batch_seconds)
    with ExitStack() as opened:
        metrics = opened.enter_context(_served(branches, checkpoints, metrics_port, metrics_host))
        opening = partial(
            projections.open_router, settings, branches, checkpoints=checkpoints, options=options, jars=spark_jars(),
            master=master, memory=memory, metrics=metrics,
        )  # fmt: skip
        outwaiting = on_demand.router_outwaiting(branches, options.restarts, metrics)
        router = outwaiting.once(lambda: opened.enter_context(opening()), stop=stop)
        if router is None:
            return
        stop_on_signal(stop)
        echo(json.dumps({"state": "routing"}) if as_json else f"routing {branches.topic}", err=not as_json)
        sys.stdout.flush()
        router.run(stop=stop)
        _tell(_counted(router), as_json=as_json, restarts=router.restarts, reloads=router.reloads, mode=router.mode)


def _served(
    branches: Branches, checkpoints: Path, port: int | None, host: str
) -> AbstractContextManager[RouterMetrics | None]:
    def make() -> projections.RouterMetrics:
        return projections.RouterMetrics(branches.topic)

    def look(metrics: RouterMetrics) -> None:
        metrics.standing(projections.branches_status(eventstore.Settings(), branches, checkpoints=checkpoints))

    return served_metrics(make, port, host, look=look)


@app.command()
def status(definition: Definition, checkpoints: Checkpoints, as_json: Json = False) -> None:
    """Show how far the router has come and how many records each branch holds."""
    branches = load_branches(definition)
    settings = reached_settings(without_kafka="there is no router: subscriptions evaluate branches themselves")
    status = projections.branches_status(settings, branches, checkpoints=checkpoints)
    if not as_json:
        behind = "no batch has ended yet" if status.lag is None else f"{status.lag:,} offsets behind"
        echo(f"{status.topic}: {behind}")
    _tell(status.counts, as_json=as_json, topic=status.topic, lag=status.lag)


def load_branches(spec: str) -> projections.Branches:
    """The branches that `module:name` names; DeclarationError says which half is wrong."""
    return load_definition(
        spec, projections.Branches, what="definition of branches", example="shop.payments:payment_branches"
    )


def _counted(router: Router) -> Mapping[str, int] | None:
    """What the branches hold; None while the broker is away, for which a stop does not wait."""
    try:
        return router.counts()
    except BrokerUnreachable:
        return None


def _tell(counts: Mapping[str, int] | None, *, as_json: bool, **facts: object) -> None:
    if as_json:
        echo(json.dumps({"counts": counts, **facts}))
    elif counts is None:
        echo("the broker is away, and counts no records of the branches")
    else:
        for name, count in counts.items():
            echo(f"{name}: {count:,} records")
