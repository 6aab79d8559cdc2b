"""`factfold cdc status`, `doctor`, `supervise`, `rotate-password`: looking after connectors that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import cdc
from cdc.findings import size
from eventstore import Restarts
from factfold import on_demand
from factfold.cli.cdc import connectors as shared
from factfold.cli.cdc.apply import app
from factfold.cli.cdc.connectors import Declared, MaybeNames, Sides, Timeout, worker
from factfold.cli.options import definition, option, setting
from factfold.cli.running import Served, log_to_stderr, stop_on_signal
from factfold.cli.show import Out, aligned, answer
from factfold.cli.views.projections import load_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Engine

    from cdc import Connector
    from cdc.comparing.source_table import CapturedModel
    from cdc.findings import Finding
    from cdc.operating.supervisor import ConnectorHealth
    from cdc.source.catalogue import ReplicationSlot

__all__ = ["app"]
# Several connectors are looked at, and a worker validates each by connecting to its database.
_PATIENCE = 60.0


@app.command()
def status(sides: Sides, out: Out, names: MaybeNames = None) -> None:
    """Show connectors, tasks, slots and the age of the last event. Exit code 0 if all run, 3 if not."""
    with sides.opened() as (client, source):
        healths = cdc.connector_health(client, *(names or ()), source=source)
    out.each(map(_health_json, healths), _health_lines(healths))
    answer(all(one.well for one in healths))


def _health_json(one: ConnectorHealth) -> dict[str, Any]:
    health = {"well": one.well, "last_event_age_seconds": one.last_event_age, "slot": one.slot, "advice": one.advice}
    return asdict(shared.standing(one.status)) | health


def _health_lines(healths: tuple[ConnectorHealth, ...]) -> Iterator[str]:
    if not healths:
        return
    heading = ("name", "state", "tasks", "last event", "slot", "behind", "holds", "log")
    causes = [[], *([*shared.causes_of(one.status), *one.advice] for one in healths)]
    for line, below in zip(aligned([heading, *map(_cells, healths)]), causes, strict=True):
        yield line
        yield from (f"    {cause}" for cause in below)


def _cells(one: ConnectorHealth) -> tuple[str, ...]:
    tasks = ", ".join(f"{task.id} {task.state}" for task in one.status.tasks) or "none"
    age = "-" if one.last_event_age is None else f"{one.last_event_age:.0f} s ago"
    return (one.status.name, one.status.state, tasks, age, *_slot_cells(one.slot))


def _slot_cells(slot: ReplicationSlot | None) -> tuple[str, ...]:
    if slot is None:
        return ("-", "-", "-", "-")
    sizes = ("-" if count is None else size(count) for count in (slot.lag_bytes, slot.retained_bytes))
    return ("read" if slot.active else "not read", *sizes, slot.wal_status or "-")


@app.command()
def doctor(
    of: Declared,
    out: Out,
    source_url: shared.SourceUrl = None,
    kafka: shared.Kafka = None,
    offline: Annotated[bool, option("--no-worker", "Look at the source alone.")] = False,
    groups: Annotated[
        list[str] | None,
        definition("A projection group, as module:name, whose models are looked at. May be repeated.", "projections",
                   name="--group")
    ] = None,
) -> None:  # fmt: skip
    """Check source, slot, worker and topics of declared connectors. Exit code 3 if one cannot work.

    With --source-url and --group, the models of projection groups are compared with the columns of the source.
    """
    models = [model for group in groups or () for model in _models(group)]
    failed, settings = False, None if kafka is None else shared.brokers_at(kafka)
    patient = nullcontext() if offline else of.worker(_PATIENCE)
    with shared.maybe_database(source_url) as source, patient as client:
        for connector in of.connectors:
            own, notes = shared.of_its_own(source, connector.config())
            findings = cdc.diagnose_connector(connector, source=own, client=client, settings=settings, models=models)
            omitted = _omitted(worker=not offline, topics=kafka is not None, source=_no_source(own, notes))
            fields = {"name": connector.name, "findings": findings, "not_looked_at": omitted}
            out.show(fields, _finding_lines(connector.name, findings, omitted))
            failed |= any(one.severity is cdc.Severity.ERROR for one in findings)
    answer(not failed)


def _models(group: str) -> Sequence[CapturedModel]:
    return on_demand.captured_models(load_group(group))


def _omitted(*, worker: bool, topics: bool, source: str) -> list[str]:
    """What is not looked at, and why: a reader must not take silence for health."""
    sides = {
        "source": source,
        "worker": "" if worker else "--no-worker",
        "topics": "" if topics else "no --kafka-bootstrap-servers",
    }
    return [f"{side} ({why})" for side, why in sides.items() if why]


def _no_source(own: Engine | None, notes: tuple[str, ...]) -> str:
    """Why a source that was given is not looked into; `diagnose_connector` itself says that none was given."""
    return notes[0].rpartition(": ")[2] if own is None and notes else ""


def _finding_lines(name: str, findings: tuple[Finding, ...], omitted: list[str]) -> Iterator[str]:
    yield name
    for one in findings:
        yield f"  {one.severity:<8}{one.check}: {one.result}"
        if one.remedy:
            yield f"          remedy: {one.remedy}"
    if omitted:
        yield f"  not looked at: {', '.join(omitted)}"


@app.command()
def supervise(
    sides: Sides,
    served: Served,
    names: MaybeNames = None,
    attempts: Annotated[int, typer.Option(min=1, help="Restarts in a row before a connector is given up.")] = 10,
    healthy_after: Annotated[float, typer.Option(min=1, help="Seconds of running that reset the count.")] = 120.0,
    as_json: Annotated[bool, option("--json", "Write the log as JSON.")] = False,
) -> None:
    """Restart failed connectors until SIGTERM. Exit code 1 if some are given up.

    With --metrics-port, connectors are shown to Prometheus, and with --source-url their replication slots.
    """
    log_to_stderr(as_json=as_json)
    policy = Restarts(limit=attempts, longest=60.0)
    stop = stop_on_signal()
    with sides.opened() as (client, source):

        def look(metrics: cdc.ConnectorMetrics) -> None:
            with worker(sides.connect_url) as own:  # of this thread
                metrics.standing(cdc.connector_health(own, *(names or ()), source=source))

        with served.metrics(lambda: cdc.ConnectorMetrics(), look) as metrics:
            cdc.Supervisor(client, names or None, policy=policy, healthy_after=healthy_after, metrics=metrics).run(stop)


@app.command()
def rotate_password(
    of: Declared,
    source_url: Annotated[str, setting("--source-url", "SQLAlchemy URL. Its login may change roles.")],
    out: Out,
    ask: Annotated[bool, option("--ask", "Ask for the new password. Default: a generated one.")] = False,
    timeout: Timeout = 90.0,
) -> None:
    """Give connectors' roles new passwords, in the database and in the secrets file, without stopping writers."""
    password = typer.prompt("New password", hide_input=True, confirmation_prompt=True, err=True) if ask else None
    with of.worker(timeout) as client, shared.database(source_url) as source:
        for first, *others in _by_role(of.connectors):
            statuses = cdc.rotate_password(
                client, first, source=source, others=others, password=password, timeout=timeout
            )
            for status in statuses:
                shared.show(status, out, "rotated")


def _by_role(connectors: Iterable[Connector]) -> list[list[on_demand.PostgresConnector]]:
    """Connectors that log in as one role get one password, whatever their references."""
    groups: dict[tuple[str, int, str], list[on_demand.PostgresConnector]] = {}
    for one in connectors:
        if isinstance(one, on_demand.PostgresConnector):
            groups.setdefault((one.host, one.port, one.user), []).append(one)
    return list(groups.values())
