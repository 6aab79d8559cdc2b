"""`factfold cdc`: plan, grants, apply, restart, pause, resume, stop, offsets, delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import cdc
from cdc.connect.status import PAUSED, RUNNING, STOPPED
from cdc.errors import SourceNotReady
from factfold import on_demand
from factfold.cli.cdc import connectors as shared
from factfold.cli.cdc.connectors import ConnectUrl, Declared, MaybeNames, Name, Names, Sides, Timeout, show, worker
from factfold.cli.options import Commands, Yes, confirm, option
from factfold.cli.show import Out, answer, as_line, echo

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc import Connector
    from cdc.connect.client import ConnectClient
    from cdc.connectors.postgres_connector import PostgresConnector
    from cdc.operating.control import State
    from cdc.operating.planning import Plan

offsets = Commands("The offsets of a connector.")
app = Commands("Connectors that capture row changes and publish events.")

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
        if isinstance(one, on_demand.PostgresConnector):
            yield from _sql(one, printed)
        else:
            yield f"-- {one.name}: no SQL; it is known for sources of PostgreSQL only"


def _statements(connector: Connector) -> list[str]:
    return list(cdc.grant_statements(connector)) if isinstance(connector, on_demand.PostgresConnector) else []


def _sql(connector: PostgresConnector, printed: set[str]) -> Iterator[str]:
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
        running = {name: info.config for name, (info, _) in client.overview().items()}
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
