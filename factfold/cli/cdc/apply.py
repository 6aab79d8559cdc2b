"""`factfold cdc`: plan, grants, apply, restart, pause, resume, stop, offsets, delete."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

import cdc
from cdc.connect.status import PAUSED, RUNNING, STOPPED
from cdc.errors import SourceNotReady
from factfold import on_demand
from factfold.cli.cdc.connectors import (
    ConnectUrl,
    Json,
    Kafka,
    MaybeNames,
    Name,
    Names,
    Reference,
    SourceUrl,
    Stack,
    Timeout,
    brokers_at,
    declared,
    maybe_database,
    of_its_own,
    show,
    worker,
)
from factfold.cli.logs import log_to_stderr
from factfold.cli.shown_values import echo

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc import Connector, Plan
    from cdc.connect.client import ConnectClient
    from cdc.connectors.postgres_connector import PostgresConnector
    from cdc.operating.control import State

offsets = typer.Typer(help="The offsets of a connector.", no_args_is_help=True)
app = typer.Typer(help="Connectors that capture row changes and publish events.", no_args_is_help=True)

app.add_typer(offsets, name="offsets")


@app.callback()
def _group() -> None:
    """Connectors that capture row changes and publish events."""
    log_to_stderr()


@app.command()
def apply(
    reference: Reference,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    kafka: Kafka = None,
    stack: Stack = None,
    timeout: Timeout = 90.0,
    as_json: Json = False,
) -> None:
    """Bring connectors to their declared configuration and wait until they stream.

    With --source-url and --kafka-bootstrap-servers, an outbox whose topics hold events of another service is refused.
    """
    connectors, settings = list(declared(reference, stack)), None if kafka is None else brokers_at(kafka)
    with worker(connect_url, patience=timeout, stack=stack) as client, maybe_database(source_url) as source:
        for connector in connectors:
            own, notes = of_its_own(source, connector.config())
            applied = cdc.apply(client, connector, source=own, settings=settings, timeout=timeout)
            done = [word for word in ("created", "changed", "resumed", "restarted") if getattr(applied, word)]
            unseen = _topics_not_seen(connector, looked=settings is not None and own is not None)
            show(applied.status, as_json=as_json, did=done or ["unchanged"], notes=(*applied.notes, *notes, *unseen))


def _topics_not_seen(connector: Connector, *, looked: bool) -> tuple[str, ...]:
    if looked or not isinstance(connector, cdc.OutboxSource):
        return ()
    return ("whose events its topics hold was not looked at: give --source-url and --kafka-bootstrap-servers",)


@app.command()
def plan(
    reference: Reference,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    stack: Stack = None,
    as_json: Json = False,
) -> None:
    """Show what apply would do, and what a source lacks, secrets masked. Exit code 3 if apply would change anything."""
    connectors = list(declared(reference, stack))
    with worker(connect_url, stack=stack) as client, maybe_database(source_url) as source:
        plans = cdc.plan(client, connectors, source=source)
    for one in plans:
        echo(json.dumps(dataclasses.asdict(one)) if as_json else _plan_text(one))
    if not all(one.is_no_op for one in plans):
        raise typer.Exit(3)


@app.command()
def grants(reference: Reference, stack: Stack = None, as_json: Json = False) -> None:
    """Print the SQL of role, rights and publication that each source needs. Nothing is executed."""
    connectors = list(declared(reference, stack))
    if as_json:
        echo(json.dumps({one.name: _statements(one) for one in connectors}))
        return
    printed: set[str] = set()
    for one in connectors:
        lines = _sql(one, printed) if isinstance(one, on_demand.PostgresConnector) else [f"-- {one.name}: {_NO_SQL}"]
        echo("\n".join(lines))


_NO_SQL = "no SQL; it is known for sources of PostgreSQL only"


def _statements(connector: Connector) -> list[str]:
    return list(cdc.grant_statements(connector)) if isinstance(connector, on_demand.PostgresConnector) else []


def _sql(connector: PostgresConnector, printed: set[str]) -> Iterator[str]:
    """The SQL of one source, for psql, without what was printed for another connector."""
    yield f"-- {connector.name}"
    yield from on_demand.grant_notes(connector)
    needed = [statement for statement in _statements(connector) if statement not in printed]
    printed.update(needed)
    yield from (f"{statement};" for statement in needed)


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
    names: MaybeNames = None,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    timeout: Timeout = 90.0,
    failed: Annotated[bool, typer.Option("--failed", help="Only those with a part that FAILED.")] = False,
    as_json: Json = False,
) -> None:
    """Start connectors and their tasks again and wait until they stream. With --failed and no name, all that FAILED."""
    if not (names or failed):
        raise typer.BadParameter("name connectors, or say --failed for all that FAILED")
    with worker(connect_url, patience=timeout) as client, maybe_database(source_url) as source:
        for name in names or _failed(client):
            if names and failed and client.status(name).failure is None:
                show(client.status(name), as_json=as_json, did=["left alone"])
            else:
                _restart(client, name, source, timeout=timeout, as_json=as_json)


def _failed(client: ConnectClient) -> list[str]:
    failed = [name for name, (_, status) in client.overview().items() if status.failure is not None]
    if not failed:
        echo("no connector has FAILED", err=True)
    return failed


def _restart(client: ConnectClient, name: str, source: Engine | None, *, timeout: float, as_json: bool) -> None:
    own, notes = of_its_own(source, client.config(name))
    show(cdc.restart(client, name, source=own, timeout=timeout), as_json=as_json, did=["restarted"], notes=notes)


@app.command()
def pause(names: Names, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Pause connectors: their tasks stay and do nothing."""
    _move(names, connect_url, PAUSED, as_json=as_json)


@app.command()
def stop(names: Names, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Stop connectors: their tasks end, their configuration and offsets stay. A slot still retains its log."""
    _move(names, connect_url, STOPPED, as_json=as_json)


@app.command()
def resume(names: Names, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Resume paused or stopped connectors."""
    _move(names, connect_url, RUNNING, as_json=as_json)


def _move(names: list[str], connect_url: str | None, state: State, *, as_json: bool) -> None:
    with worker(connect_url) as client:
        for name in names:
            show(cdc.move(client, name, state), as_json=as_json)


@offsets.command("show")
def show_offsets(name: Name, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Show the offsets of a connector."""
    with worker(connect_url) as client:
        offsets = [dataclasses.asdict(offset) for offset in client.offsets(name)]
    for one in [offsets] if as_json else offsets:
        echo(json.dumps(one, default=dict))


@offsets.command()
def reset(
    name: Name,
    connect_url: ConnectUrl = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Stop a connector and delete its offsets. Resumed, it takes a new initial snapshot."""
    if not yes:
        typer.confirm(f"Forget how far {name!r} has come? It will take a new initial snapshot", abort=True, err=True)
    with worker(connect_url) as client:
        cdc.reset_offsets(client, name)
    line = f"{name}  stopped, without offsets; factfold cdc resume {name}"
    echo(json.dumps({"name": name, "state": STOPPED, "offsets": []}) if as_json else line)


@app.command()
def delete(
    names: Names,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Delete the offsets too: created again, it takes a new initial snapshot.")
    ] = False,
    slots: Annotated[
        bool, typer.Option("--drop-slot", help="Drop the replication slots too, which needs --source-url.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete connectors. Their topics stay, and replication slots too without --drop-slot."""
    if slots and source_url is None:
        raise typer.BadParameter("--drop-slot needs --source-url")
    with worker(connect_url) as client, maybe_database(source_url if slots else None) as source:
        running = {name: info.config for name, (info, _) in client.overview().items()}
        chosen = {name: _slot(name, running[name], source) for name in names if name in running}
        for name in names:
            deleted = cdc.delete(client, name, forget=forget)
            dropped = _dropped(chosen.get(name), source)
            _tell_deleted(name, deleted=deleted, dropped=dropped, as_json=as_json)


def _slot(name: str, config: Mapping[str, str], source: Engine | None) -> str | None:
    """Return the slot to drop; SourceNotReady, before anything is deleted, where it is not in that database."""
    own, notes = of_its_own(source, config)
    if own is not source:
        raise SourceNotReady(
            f"the slot of connector {name!r} cannot be dropped: {notes[0]}",
            remedy="give the URL of the connector's database, or delete it without --drop-slot",
            place=name,
        )
    return config.get("slot.name")


def _dropped(slot: str | None, source: Engine | None) -> str | None:
    return slot if slot is not None and source is not None and cdc.drop_slot(source, slot) else None


def _tell_deleted(name: str, *, deleted: bool, dropped: str | None, as_json: bool) -> None:
    if as_json:
        echo(json.dumps({"name": name, "deleted": deleted, "dropped_slot": dropped}))
    else:
        slot = [f"slot {dropped} dropped"] if dropped else []
        echo("  ".join([name, "deleted" if deleted else "there was none", *slot]))
