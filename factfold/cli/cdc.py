"""`factfold cdc`: plan, grants, apply, restart, pause, resume, stop, offsets, delete."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc.status import PAUSED, RUNNING, STOPPED
from factfold.cli.logs import log_to_stderr

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc import Connector, ConnectorStatus, Plan
    from cdc.connect import ConnectClient

offsets = typer.Typer(help="How far a connector has come.", no_args_is_help=True)
app = typer.Typer(help="Connectors that capture row changes and publish events.", no_args_is_help=True)

ConnectUrl = Annotated[
    str | None,
    typer.Option("--connect-url", envvar="FACTFOLD_CONNECT_URL", help="Default: the local stack's worker."),
]
SourceUrl = Annotated[
    str | None,
    typer.Option("--source-url", envvar="FACTFOLD_SOURCE_URL", help="SQLAlchemy URL of the connectors' database."),
]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds for each connector.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Names = Annotated[list[str], typer.Argument(help="Names of connectors.")]
Name = Annotated[str, typer.Argument(help="The connector.")]
Reference = Annotated[
    str, typer.Argument(help="A .toml file; or module:attribute: a connector, several, or a function that gives them.")
]


app.add_typer(offsets, name="offsets")


@app.callback()
def cdc() -> None:
    """Connectors that capture row changes and publish events."""
    log_to_stderr()


@app.command()
def apply(
    reference: Reference,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    timeout: Timeout = 90.0,
    as_json: Json = False,
) -> None:
    """Bring connectors to their declared configuration and wait until they stream."""
    import cdc

    connectors = list(_connectors(reference))
    with _client(connect_url) as client, _engine(source_url) as source:
        for connector in connectors:
            applied = cdc.apply(client, connector, source=_looked_into(connector, source), timeout=timeout)
            done = [word for word in ("created", "changed", "resumed") if getattr(applied, word)]
            _show(applied.status, as_json=as_json, did=done or ["unchanged"])


def _looked_into(connector: Connector, source: Engine | None) -> Engine | None:
    """A file may declare connectors to more than PostgreSQL; the URL is that of those."""
    from cdc.connectors.postgres import PostgresConnector

    return source if isinstance(connector, PostgresConnector) else None


@app.command()
def plan(reference: Reference, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Show what apply would do, secrets masked; exit code 2 where that is anything."""
    import cdc

    with _client(connect_url) as client:
        plans = cdc.plan(client, _connectors(reference))
    for one in plans:
        typer.echo(json.dumps(dataclasses.asdict(one)) if as_json else _told(one))
    if any(one.action in ("create", "change") for one in plans):
        raise typer.Exit(2)


@app.command()
def grants(reference: Reference, as_json: Json = False) -> None:
    """Print the SQL of role, rights and publication that each source needs, and no more; asks nobody."""
    import cdc
    from cdc.connectors.postgres import PostgresConnector

    found = {
        one.name: cdc.grant_statements(one) for one in _connectors(reference) if isinstance(one, PostgresConnector)
    }
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, statements in found.items():
        typer.echo("\n".join([f"-- {name}", *(f"{statement};" for statement in statements)]))


def _told(plan: Plan) -> str:
    state = f"  {plan.state}" if plan.state else ""
    lines = [f"    {c.key}: {_value(c.running)} → {_value(c.declared)}" for c in plan.changes]
    return "\n".join([f"{plan.name}  {plan.action}{state}", *lines])


def _value(value: str | None) -> str:
    return "(none)" if value is None else value or "(empty)"


@app.command()
def restart(
    names: Names,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    timeout: Timeout = 90.0,
    failed: Annotated[bool, typer.Option("--failed", help="Only those with a part that FAILED.")] = False,
    as_json: Json = False,
) -> None:
    """Start connectors and their tasks again and wait until they stream."""
    import cdc

    with _client(connect_url) as client, _engine(source_url) as source:
        for name in names:
            if failed and client.status(name).failure is None:
                _show(client.status(name), as_json=as_json, did=["left alone"])
            else:
                _show(cdc.restart(client, name, source=source, timeout=timeout), as_json=as_json, did=["restarted"])


@app.command()
def pause(names: Names, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Let connectors rest: their tasks stay and do nothing."""
    _move(names, connect_url, PAUSED, as_json=as_json)


@app.command()
def stop(names: Names, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Stop connectors: their tasks go, their configuration and offsets stay. A slot goes on holding its log."""
    _move(names, connect_url, STOPPED, as_json=as_json)


@app.command()
def resume(names: Names, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Let paused or stopped connectors run."""
    _move(names, connect_url, RUNNING, as_json=as_json)


def _move(names: list[str], connect_url: str | None, state: str, *, as_json: bool) -> None:
    import cdc

    with _client(connect_url) as client:
        for name in names:
            _show(cdc.move(client, name, state), as_json=as_json)


@offsets.command()
def show(name: Name, connect_url: ConnectUrl = None, as_json: Json = False) -> None:
    """Show how far a connector has come, in its own terms."""
    with _client(connect_url) as client:
        found = [dataclasses.asdict(offset) for offset in client.offsets(name)]
    for one in [found] if as_json else found:
        typer.echo(json.dumps(one, default=dict))


@offsets.command()
def reset(
    name: Name,
    connect_url: ConnectUrl = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget how far a connector has come, and leave it stopped: it takes a new initial snapshot when it is resumed."""
    import cdc

    if not yes:
        typer.confirm(f"Forget how far {name!r} has come? It will take a new initial snapshot", abort=True, err=True)
    with _client(connect_url) as client:
        cdc.reset_offsets(client, name)
    typer.echo(f"{name}  stopped, without offsets; factfold cdc resume {name}")


@app.command()
def delete(
    names: Names,
    connect_url: ConnectUrl = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove offsets too: made again, it takes a new snapshot.")
    ] = False,
) -> None:
    """Remove connectors; their topics and the replication slots of their sources stay."""
    import cdc

    with _client(connect_url) as client:
        for name in names:
            gone = cdc.delete(client, name, forget=forget)
            typer.echo(f"{name}  {'deleted' if gone else 'there was none'}")


@contextmanager
def _client(url: str | None) -> Iterator[ConnectClient]:
    """Open a client of the worker at a URL, or of the local stack's."""
    from cdc import ConnectClient

    # Someone is waiting at a terminal: `apply` waits longer by itself for a worker that is starting.
    with ConnectClient(url or _local_worker(), patience=10.0) as client:
        yield client


def _local_worker() -> str:
    from factfold.stack import LocalStack

    return LocalStack().info.connect_url


@contextmanager
def _engine(url: str | None) -> Iterator[Engine | None]:
    """Open the connectors' database, if its URL was given; SourceNotReady for a URL that is none."""
    if url is None:
        yield None
        return
    with _database(url) as engine:
        yield engine


@contextmanager
def _database(url: str) -> Iterator[Engine]:
    """Open a database; SourceNotReady for a URL that is none."""
    engine = _created(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _created(url: str) -> Engine:
    import sqlalchemy

    from cdc.errors import SourceNotReady

    with suppress(sqlalchemy.exc.ArgumentError, ValueError):
        return sqlalchemy.create_engine(url)
    # Raised here and not above: its own words may hold the URL, and with it a password.
    raise SourceNotReady(
        "the source's URL cannot be read",
        remedy="write postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE, with @ : / of a password as %40 %3A %2F",
        place="--source-url",
    )


def _connectors(reference: str) -> Iterable[Connector]:
    """Load what a .toml file declares, or what stands under `module:attribute`."""
    if reference.endswith(".toml"):
        import cdc

        return cdc.load(reference)
    found = _loaded(reference)
    found = found() if callable(found) else found
    return found if isinstance(found, Iterable) else [found]


def _loaded(reference: str) -> Any:
    import sys
    from importlib import import_module

    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise typer.BadParameter(f"{reference!r} is not module:attribute")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise typer.BadParameter(f"{reference!r} cannot be loaded: {error}") from error


def _show(found: ConnectorStatus, *, as_json: bool, did: list[str] | None = None) -> None:
    """Print a connector's states, what was done with it, and why something FAILED."""
    if as_json:
        typer.echo(json.dumps(described(found) | ({"did": did} if did else {})))
        return
    typer.echo("  ".join([found.name, *(did or ()), found.summary()]))
    for cause in causes_of(found):
        typer.echo(f"    {cause}")


def described(found: ConnectorStatus) -> dict[str, Any]:
    """A connector's states for JSON."""
    tasks = [{"id": task.id, "state": task.state, "worker": task.worker_id} for task in found.tasks]
    return {"name": found.name, "state": found.state, "tasks": tasks, "causes": causes_of(found)}


def causes_of(found: ConnectorStatus) -> list[str]:
    """The causes of a failure in short, the root last; nothing where nothing FAILED."""
    from cdc.failures import short_trace

    return list(short_trace(found.failure[1])) if found.failure else []
