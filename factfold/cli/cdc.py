"""`factfold cdc`: apply, status, restart, delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from factfold.cli.logs import log_to_stderr

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc import Connector, ConnectorStatus
    from cdc.connect import ConnectClient

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


@app.callback()
def cdc() -> None:
    """Connectors that capture row changes and publish events."""
    log_to_stderr()


@app.command()
def apply(
    reference: Annotated[
        str, typer.Argument(help="module:attribute, a connector, several, or a function that gives them.")
    ],
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
            applied = cdc.apply(client, connector, source=source, timeout=timeout)
            done = [word for word in ("created", "changed", "resumed") if getattr(applied, word)]
            _show(applied.status, as_json=as_json, did=done or ["unchanged"])


@app.command()
def status(
    names: Annotated[list[str] | None, typer.Argument(help="Names; default: all.")] = None,
    connect_url: ConnectUrl = None,
    as_json: Json = False,
) -> None:
    """Show connectors and their tasks; exit code 0 when all run, 3 when not."""
    import cdc

    with _client(connect_url) as client:
        found = [client.status(name) for name in names] if names else list(cdc.statuses(client))
    for one in found:
        _show(one, as_json=as_json)
    if not all(one.running for one in found):
        raise typer.Exit(3)


@app.command()
def restart(
    names: Names,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    timeout: Timeout = 90.0,
    as_json: Json = False,
) -> None:
    """Start connectors and their tasks again and wait until they stream."""
    import cdc

    with _client(connect_url) as client, _engine(source_url) as source:
        for name in names:
            _show(cdc.restart(client, name, source=source, timeout=timeout), as_json=as_json, did=["restarted"])


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
    from cdc import ConnectClient

    # Someone is waiting at a terminal: `apply` waits longer by itself for a worker that is starting.
    with ConnectClient(url or _local_worker(), patience=10.0) as client:
        yield client


def _local_worker() -> str:
    from factfold.stack import LocalStack

    return LocalStack().info.connect_url


@contextmanager
def _engine(url: str | None) -> Iterator[Engine | None]:
    if url is None:
        yield None
        return
    import sqlalchemy

    engine = sqlalchemy.create_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _connectors(reference: str) -> Iterable[Connector]:
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
    import json

    causes = _causes(found)
    if as_json:
        tasks = [{"id": task.id, "state": task.state, "worker": task.worker_id} for task in found.tasks]
        described = {"name": found.name, "state": found.state, "tasks": tasks, "causes": causes}
        typer.echo(json.dumps(described | ({"did": did} if did else {})))
        return
    typer.echo("  ".join([found.name, *(did or ()), found.summary()]))
    for cause in causes:
        typer.echo(f"    {cause}")


def _causes(found: ConnectorStatus) -> list[str]:
    from cdc.failures import short_trace

    return list(short_trace(found.failure[1])) if found.failure else []
