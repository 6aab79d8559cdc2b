"""`factfold cdc status`, `doctor`, `supervise`, `rotate-password`: looking after connectors that run."""

from __future__ import annotations

import dataclasses
import json
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import cdc
from cdc.findings import size
from eventstore import Restarts
from factfold import on_demand
from factfold.cli.cdc.apply import app
from factfold.cli.cdc.connectors import (
    ConnectUrl,
    Json,
    Kafka,
    MaybeNames,
    Reference,
    SourceUrl,
    Stack,
    Timeout,
    brokers_at,
    causes_of,
    database,
    declared,
    described,
    maybe_database,
    of_its_own,
    show,
    worker,
)
from factfold.cli.completions import completes
from factfold.cli.logs import log_to_stderr
from factfold.cli.metrics import LOCAL, MetricsHost, MetricsPort, served_metrics
from factfold.cli.shown_values import echo
from factfold.cli.signals import stop_on_signal
from factfold.cli.views.projections import load_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Engine

    from cdc import Connector, ConnectorHealth, Finding
    from cdc.comparing.models import CapturedModel
    from cdc.operating.connector_metrics import ConnectorMetrics
    from cdc.source.catalogue import ReplicationSlot

__all__ = ["app"]


@app.command()
def status(
    names: MaybeNames = None,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    as_json: Json = False,
) -> None:
    """Show connectors, tasks, slots and the age of the last event. Exit code 0 if all run, 3 if not."""
    with worker(connect_url) as client, maybe_database(source_url) as source:
        healths = cdc.healths(client, names or None, source=source)
    if as_json:
        for one in healths:
            echo(json.dumps(_health_json(one)))
    else:
        _print_healths(healths)
    if not all(one.well for one in healths):
        raise typer.Exit(3)


def _health_json(one: ConnectorHealth) -> dict[str, Any]:
    slot = None if one.slot is None else dataclasses.asdict(one.slot)
    health = {"well": one.well, "last_event_age_seconds": one.last_event_age, "slot": slot, "advice": list(one.advice)}
    return described(one.status) | health


def _print_healths(healths: tuple[ConnectorHealth, ...]) -> None:
    if not healths:
        return
    heading = ("name", "state", "tasks", "last event", "slot", "behind", "holds", "log")
    rows = [heading, *(_cells(one) for one in healths)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heading))]
    causes = [[], *([*causes_of(one.status), *one.advice] for one in healths)]
    for row, below in zip(rows, causes, strict=True):
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for cause in below:
            echo(f"    {cause}")


def _cells(one: ConnectorHealth) -> tuple[str, ...]:
    tasks = ", ".join(f"{task.id} {task.state}" for task in one.status.tasks) or "none"
    age = "-" if one.last_event_age is None else f"{one.last_event_age:.0f} s ago"
    return (one.status.name, one.status.state, tasks, age, *_slot_cells(one.slot))


def _slot_cells(slot: ReplicationSlot | None) -> tuple[str, ...]:
    if slot is None:
        return ("-", "-", "-", "-")
    sizes = ("-" if count is None else size(count) for count in (slot.lag_bytes, slot.retained_bytes))
    return ("read" if slot.active else "not read", *sizes, slot.wal_status or "-")


Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        help="A projection group, as module:name, whose models are looked at. May be repeated.",
        autocompletion=completes("projections"),
    ),
]


@app.command()
def doctor(
    reference: Reference,
    source_url: SourceUrl = None,
    connect_url: ConnectUrl = None,
    kafka: Kafka = None,
    offline: Annotated[bool, typer.Option("--no-worker", help="Look at the source alone.")] = False,
    groups: Groups = None,
    stack: Stack = None,
    as_json: Json = False,
) -> None:
    """Check source, slot, worker and topics of declared connectors. Exit code 3 if one cannot work.

    With --source-url and --group, the models of projection groups are compared with the columns of the source.
    """
    from contextlib import nullcontext

    models = [model for group in groups or () for model in _models(group)]
    failed, settings = False, None if kafka is None else brokers_at(kafka)
    patient = nullcontext() if offline else worker(connect_url, patience=_PATIENCE, stack=stack)
    with maybe_database(source_url) as source, patient as client:
        for connector in declared(reference, stack):
            own, notes = of_its_own(source, connector.config())
            findings = cdc.diagnose(connector, source=own, client=client, settings=settings, models=models)
            omitted = _omitted(worker=not offline, topics=kafka is not None, source=_no_source(own, notes))
            _print_findings(connector.name, findings, omitted, as_json=as_json)
            failed |= any(one.severity is cdc.Severity.ERROR for one in findings)
    if failed:
        raise typer.Exit(3)


def _models(group: str) -> Sequence[CapturedModel]:
    return on_demand.captured_models(load_group(group))


# Several connectors are looked at, and a worker validates each by connecting to its database.
_PATIENCE = 60.0


def _omitted(*, worker: bool, topics: bool, source: str) -> list[str]:
    """What is not looked at, and why: a reader must not take silence for health."""
    sides = {
        "source": source,
        "worker": "" if worker else "--no-worker",
        "topics": "" if topics else "no --kafka-bootstrap-servers",
    }
    return [f"{side} ({why})" for side, why in sides.items() if why]


def _no_source(own: Engine | None, notes: tuple[str, ...]) -> str:
    """Why a source that was given is not looked into; `diagnose` itself says that none was given."""
    return notes[0].rpartition(": ")[2] if own is None and notes else ""


def _print_findings(name: str, findings: tuple[Finding, ...], omitted: list[str], *, as_json: bool) -> None:
    if as_json:
        shown = [dataclasses.asdict(one) for one in findings]
        echo(json.dumps({"name": name, "findings": shown, "not_looked_at": omitted}))
        return
    echo(name)
    for one in findings:
        echo(f"  {one.severity:<8}{one.check}: {one.result}")
        if one.remedy:
            echo(f"          remedy: {one.remedy}")
    if omitted:
        echo(f"  not looked at: {', '.join(omitted)}")


@app.command()
def supervise(
    names: MaybeNames = None,
    connect_url: ConnectUrl = None,
    attempts: Annotated[int, typer.Option(min=1, help="Restarts in a row before a connector is given up.")] = 10,
    healthy_after: Annotated[float, typer.Option(min=1, help="Seconds of running that reset the count.")] = 120.0,
    source_url: SourceUrl = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    as_json: Annotated[bool, typer.Option("--json", help="Write the log as JSON.")] = False,
) -> None:
    """Restart failed connectors until SIGTERM. Exit code 1 if some are given up.

    With --metrics-port, connectors are shown to Prometheus, and with --source-url their replication slots.
    """
    log_to_stderr(as_json=as_json)
    policy = Restarts(limit=attempts, longest=60.0)
    stop = stop_on_signal()
    with (
        worker(connect_url) as client,
        maybe_database(source_url) as source,
        _served(connect_url, names or None, source, metrics_port, metrics_host) as metrics,
    ):
        cdc.Supervisor(client, names or None, policy=policy, healthy_after=healthy_after, metrics=metrics).run(stop)


def _served(
    url: str | None, names: Sequence[str] | None, source: Engine | None, port: int | None, host: str
) -> AbstractContextManager[ConnectorMetrics | None]:
    def make() -> cdc.ConnectorMetrics:
        return cdc.ConnectorMetrics()

    def look(metrics: ConnectorMetrics) -> None:
        with worker(url) as client:  # of this thread's own
            metrics.standing(cdc.healths(client, names, source=source))

    return served_metrics(make, port, host, look=look)


@app.command()
def rotate_password(
    reference: Reference,
    source_url: Annotated[
        str,
        typer.Option("--source-url", envvar="FACTFOLD_SOURCE_URL", help="SQLAlchemy URL. Its login may change roles."),
    ],
    connect_url: ConnectUrl = None,
    stack: Stack = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for the new password. Default: a generated one.")] = False,
    timeout: Timeout = 90.0,
    as_json: Json = False,
) -> None:
    """Give connectors' roles new passwords, in the database and in the secrets file, without stopping writers."""
    password = typer.prompt("New password", hide_input=True, confirmation_prompt=True, err=True) if ask else None
    with worker(connect_url, patience=timeout, stack=stack) as client, database(source_url) as source:
        for first, *others in _by_role(declared(reference, stack)):
            statuses = cdc.rotate_password(
                client, first, source=source, others=others, password=password, timeout=timeout
            )
            for status in statuses:
                show(status, as_json=as_json, did=["rotated"])


def _by_role(connectors: Iterable[Connector]) -> list[list[on_demand.PostgresConnector]]:
    """Connectors that log in as one role get one password, whatever their references."""
    groups: dict[tuple[str, int, str], list[on_demand.PostgresConnector]] = {}
    for one in connectors:
        if isinstance(one, on_demand.PostgresConnector):
            groups.setdefault((one.host, one.port, one.user), []).append(one)
    return list(groups.values())
