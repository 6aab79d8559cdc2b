"""`factfold cdc status`, `doctor`, `supervise`, `rotate-password`: looking after connectors that run.

`factfold cdc`: plan, grants, apply, restart, pause, resume, stop, offsets, delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import cdc
from cdc.connect.status import PAUSED, RUNNING, STOPPED
from cdc.errors import SourceNotReady
from cdc.findings import size
from eventstore import Restarts
from factfold import on_demand
from factfold.cli.cdc import connectors as shared
from factfold.cli.cdc.connectors import ConnectUrl, Declared, MaybeNames, Name, Names, Sides, Timeout, app, show, worker
from factfold.cli.options import Commands, Yes, confirm, definition, option, setting
from factfold.cli.running import Served, log_to_stderr, stop_on_signal
from factfold.cli.show import Out, aligned, answer, as_line, echo
from factfold.cli.views.projections import load_group

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Engine

    from cdc import Connector
    from cdc.connect.client import ConnectClient
    from cdc.findings import Finding
    from cdc.operating.control import State
    from cdc.operating.planning import Plan
    from cdc.operating.supervisor import ConnectorHealth
    from cdc.source.catalogue import ReplicationSlot

offsets = Commands("The offsets of a connector.")

app.add_typer(offsets, name="offsets")


@app.command()
def apply(
    to: Declared,
    out: Out,
    source_url: shared.SourceUrl = None,
    kafka: shared.Kafka = None,
    timeout: Timeout = 90.0,
) -> None:
    """Bring connectors to their declared configuration and wait until they stream.

    With --source-url and --kafka-bootstrap-servers, an outbox whose topics hold events of another service is refused.
    """
    connectors, settings = to.connectors, None if kafka is None else shared.brokers_at(kafka)
    with to.worker(timeout) as client, shared.maybe_database(source_url) as source:
        for connector in connectors:
            own, notes = shared.of_its_own(source, connector.config())
            applied = cdc.apply_connector(client, connector, source=own, settings=settings, timeout=timeout)
            done = [word for word in ("created", "changed", "resumed", "restarted") if getattr(applied, word)]
            unseen = _topics_not_seen(connector, looked=settings is not None and own is not None)
            show(applied.status, out, *(done or ["unchanged"]), notes=(*applied.notes, *notes, *unseen))


def _topics_not_seen(connector: Connector, *, looked: bool) -> tuple[str, ...]:
    if looked or not isinstance(connector, cdc.OutboxSource):
        return ()
    return ("whose events its topics hold was not looked at: give --source-url and --kafka-bootstrap-servers",)


@app.command()
def plan(to: Declared, out: Out, source_url: shared.SourceUrl = None) -> None:
    """Show what apply would do, and what a source lacks, secrets masked. Exit code 3 if apply would change anything."""
    connectors = to.connectors
    with to.worker() as client, shared.maybe_database(source_url) as source:
        plans = cdc.plan_connectors(client, connectors, source=source)
    for one in plans:
        out.show(one, _plan_text(one))
    answer(all(one.is_no_op for one in plans))


@app.command()
def grants(reference: shared.Reference, out: Out, stack: shared.Stack = None) -> None:
    """Print the SQL of role, rights and publication that each source needs. Nothing is executed."""
    connectors = list(shared.declared(reference, stack))
    out.show({one.name: _statements(one) for one in connectors}, _grants(connectors))


def _grants(connectors: list[Connector]) -> Iterator[str]:
    """The SQL of each source, for psql, without what was printed for another connector."""
    printed: set[str] = set()
    for one in connectors:
        if not isinstance(one, on_demand.PostgresConnector):
            yield f"-- {one.name}: no SQL; it is known for sources of PostgreSQL only"
            continue
        yield f"-- {one.name}"
        yield from on_demand.grant_notes(one)
        needed = [statement for statement in _statements(one) if statement not in printed]
        printed.update(needed)
        yield from (f"{statement};" for statement in needed)


def _statements(connector: Connector) -> list[str]:
    return list(cdc.grant_statements(connector)) if isinstance(connector, on_demand.PostgresConnector) else []


def _plan_text(plan: Plan) -> str:
    state = f"  {plan.state}" if plan.state else ""
    lines = [f"    problem: {problem}" for problem in plan.problems]
    lines += [f"    note: {note}" for note in plan.notes]
    if plan.action == "create":
        lines += [f"    {len(plan.changes)} settings, which --json lists"]
    else:
        lines += [f"    {c.key}: {_value(c.running)} → {_value(c.declared)}" for c in plan.changes]
    action = "keep: as declared" if plan.action == "keep" else plan.action
    return "\n".join([f"{plan.name}  {action}{state}", *lines])


def _value(value: str | None) -> str:
    return "(none)" if value is None else value or "(empty)"


@app.command()
def restart(
    sides: Sides,
    out: Out,
    names: MaybeNames = None,
    timeout: Timeout = 90.0,
    failed: Annotated[bool, option("--failed", "Only those with a part that FAILED.")] = False,
) -> None:
    """Start connectors and their tasks again and wait until they stream. With --failed and no name, all that FAILED."""
    if not (names or failed):
        raise typer.BadParameter("name connectors, or say --failed for all that FAILED")
    with sides.opened(patience=timeout) as (client, source):
        for name in names or _failed(client):
            if names and failed and client.status(name).failure is None:
                show(client.status(name), out, "left alone")
                continue
            status, notes = shared.restarted(client, name, source, timeout=timeout)
            show(status, out, "restarted", notes=notes)


def _failed(client: ConnectClient) -> list[str]:
    failed = shared.failed_names(client)
    if not failed:
        echo("no connector has FAILED", err=True)
    return failed


@app.command()
def pause(names: Names, out: Out, connect_url: ConnectUrl = None) -> None:
    """Pause connectors: their tasks stay and do nothing."""
    _move(names, connect_url, PAUSED, out)


@app.command()
def stop(names: Names, out: Out, connect_url: ConnectUrl = None) -> None:
    """Stop connectors: their tasks end, their configuration and offsets stay. A slot still retains its log."""
    _move(names, connect_url, STOPPED, out)


@app.command()
def resume(names: Names, out: Out, connect_url: ConnectUrl = None) -> None:
    """Resume paused or stopped connectors."""
    _move(names, connect_url, RUNNING, out)


def _move(names: list[str], connect_url: str | None, state: State, out: Out) -> None:
    with worker(connect_url) as client:
        for name in names:
            show(cdc.set_connector_state(client, name, state), out)


@offsets.command("show")
def show_offsets(name: Name, out: Out, connect_url: ConnectUrl = None) -> None:
    """Show the offsets of a connector."""
    with worker(connect_url) as client:
        offsets = [asdict(offset) for offset in client.offsets(name)]
    out.show(offsets, (as_line(one) for one in offsets))


@offsets.command()
def reset(name: Name, out: Out, connect_url: ConnectUrl = None, yes: Yes = False) -> None:
    """Stop a connector and delete its offsets. Resumed, it takes a new initial snapshot."""
    confirm(f"Forget how far {name!r} has come? It will take a new initial snapshot", yes=yes)
    with worker(connect_url) as client:
        cdc.reset_offsets(client, name)
    fields = {"name": name, "state": STOPPED, "offsets": []}
    out.show(fields, f"{name}  stopped, without offsets; factfold cdc resume {name}")


@app.command()
def delete(
    names: Names,
    sides: Sides,
    out: Out,
    forget: Annotated[
        bool, option("--forget", "Delete the offsets too: created again, it takes a new initial snapshot.")
    ] = False,
    slots: Annotated[bool, option("--drop-slot", "Drop the replication slots too, which needs --source-url.")] = False,
) -> None:
    """Delete connectors. Their topics stay, and replication slots too without --drop-slot."""
    if slots and sides.source_url is None:
        raise typer.BadParameter("--drop-slot needs --source-url")
    with worker(sides.connect_url) as client, shared.maybe_database(sides.source_url if slots else None) as source:
        running = {name: config for name, (config, _) in client.overview().items()}
        chosen = {name: _slot(name, running[name], source) for name in names if name in running}
        for name in names:
            deleted = cdc.delete_connector(client, name, forget=forget)
            dropped = _dropped(chosen.get(name), source)
            said = [name, "deleted" if deleted else "there was none", *([f"slot {dropped} dropped"] if dropped else [])]
            out.show({"name": name, "deleted": deleted, "dropped_slot": dropped}, "  ".join(said))


def _slot(name: str, config: Mapping[str, str], source: Engine | None) -> str | None:
    """Return the slot to drop; SourceNotReady, before anything is deleted, where it is not in that database."""
    own, notes = shared.of_its_own(source, config)
    if own is not source:
        raise SourceNotReady(
            f"the slot of connector {name!r} cannot be dropped: {notes[0]}",
            remedy="give the URL of the connector's database, or delete it without --drop-slot",
            place=name,
        )
    return config.get("slot.name")


def _dropped(slot: str | None, source: Engine | None) -> str | None:
    return slot if slot is not None and source is not None and cdc.drop_slot(source, slot) else None


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
    models = [model for group in groups or () for model in on_demand.captured_models(load_group(group))]
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
