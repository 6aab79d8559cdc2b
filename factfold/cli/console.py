"""`factfold console`: the pages of a service in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from factfold.cli.logs import log_to_stderr

PORT = 8700


def console(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="What the service declares: a package, a module, or a definition as module:name; may be several.",
            metavar="[PACKAGE...]",
        ),
    ] = None,
    store_url: Annotated[
        str | None, typer.Option("--store-url", envvar="FACTFOLD_STORE_URL", help="SQLAlchemy URL of the event store.")
    ] = None,
    store_schema: Annotated[
        str | None, typer.Option("--schema", envvar="FACTFOLD_STORE_SCHEMA", help="The store's schema (PostgreSQL).")
    ] = None,
    views_url: Annotated[
        str | None, typer.Option("--views-url", envvar="FACTFOLD_VIEWS_URL", help="Where the views are.")
    ] = None,
    connect_url: Annotated[
        str | None, typer.Option("--connect-url", envvar="FACTFOLD_CONNECT_URL", help="The Connect worker's URL.")
    ] = None,
    source_url: Annotated[
        str | None,
        typer.Option("--source-url", envvar="FACTFOLD_SOURCE_URL", help="URL of the connectors' database."),
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", envvar="FACTFOLD_DATABASE", help="URL of the handlers' database.")
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option("--checkpoints", envvar="FACTFOLD_CHECKPOINTS", help="Folder of the routers.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 takes a free one.")] = PORT,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A further host and port that browsers use: console.internal:8700."),
    ] = None,
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Allow restarts, resets, replays and cut-overs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the URL and write the log as JSON.")] = False,
) -> None:
    """Show a service in a browser: what runs and what is behind, events, views, connectors, dead letters.

    The page is served to this machine only, and opens by the printed URL. No page starts Spark.
    """
    from eventstore.extras import require_extra
    from factfold.cli.signals import stop_on_signal

    require_extra("console")
    from factfold.console.definitions import find_definitions
    from factfold.console.server import Server
    from factfold.console.sources import Places, Sources

    log_to_stderr(as_json=as_json)
    places = Places(
        store_url=store_url, store_schema=store_schema, views_url=views_url, connect_url=connect_url,
        source_url=source_url, database=database, checkpoints=checkpoints, kafka=Places.kafka_is_configured(),
    )  # fmt: skip
    found = find_definitions(targets or ())
    with Sources(places, found) as sources:
        server = Server(sources, host=host, port=port, also=allowed_hosts or (), allow_actions=allow_actions)
        tell(server.url, allow_actions=allow_actions, as_json=as_json)
        server.run(stop_on_signal())


def tell(url: str, *, allow_actions: bool, as_json: bool) -> None:
    """Print the URL to open."""
    import json
    import sys

    said = f"open {url}\n{'actions are allowed' if allow_actions else 'read-only; --allow-actions allows actions'}"
    typer.echo(json.dumps({"url": url, "allow_actions": allow_actions}) if as_json else said)
    sys.stdout.flush()
