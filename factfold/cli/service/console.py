"""`factfold console`: the pages of a service in a browser."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from eventstore.extras import require_extra
from factfold.cli.brokers import brokers_are_named
from factfold.cli.cdc.connectors import ConnectUrl, SourceUrl
from factfold.cli.completions import complete_package
from factfold.cli.events.store import Schema
from factfold.cli.events.subscriptions import Database as InboxUrl
from factfold.cli.logs import log_to_stderr
from factfold.cli.shown_values import echo
from factfold.cli.signals import stop_on_signal
from factfold.console.definitions import find_definitions
from factfold.console.places import Places
from factfold.console.sources import Sources

PORT: Final = 8700
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        help="What the service declares: a package, a module, or a definition as module:name. May be several.",
        metavar="PACKAGE",
        autocompletion=complete_package,
    ),
]
StoreUrl = Annotated[
    str | None, typer.Option("--store-url", envvar="FACTFOLD_STORE_URL", help="SQLAlchemy URL of the event store.")
]
ViewsUrl = Annotated[str | None, typer.Option("--views-url", envvar="FACTFOLD_VIEWS_URL", help="Where the views are.")]
Checkpoints = Annotated[
    Path | None, typer.Option("--checkpoints", envvar="FACTFOLD_CHECKPOINTS", help="Folder of the routers.")
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A further host and port that browsers use: console.internal:8700."),
]


def console(
    targets: Targets = None,
    store_url: StoreUrl = None,
    schema: Schema = None,
    views_url: ViewsUrl = None,
    connect_url: ConnectUrl = None,
    source_url: SourceUrl = None,
    inbox_url: InboxUrl = None,
    checkpoints: Checkpoints = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port. 0 takes a free one.")] = PORT,
    allowed_hosts: AllowedHosts = None,
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Allow restarts, resets, replays and cut-overs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the URL and write the log as JSON.")] = False,
) -> None:
    """Show a service in a browser: what runs, what is behind and why.

    Pages show events, views, processes, connectors and dead letters.

    The printed URL opens it, on this machine only unless --host names an address of its network. No page starts Spark.
    """
    require_extra("console")
    from factfold.console.server import Server  # needs the extra, and this command's help does without it

    log_to_stderr(as_json=as_json)
    places = Places(
        store_url=store_url, store_schema=schema, views_url=views_url, connect_url=connect_url,
        source_url=source_url, inbox_url=inbox_url, checkpoints=checkpoints, kafka=brokers_are_named(),
    )  # fmt: skip
    with Sources(places, find_definitions(targets or ())) as sources:
        server = Server(sources, host=host, port=port, also=allowed_hosts or (), allow_actions=allow_actions)
        _print_url(server.url, host, allow_actions=allow_actions, as_json=as_json)
        server.run(stop_on_signal())


def _print_url(url: str, host: str, *, allow_actions: bool, as_json: bool) -> None:
    """Print the URL to open, and what it allows to whom."""
    if as_json:
        echo(json.dumps({"url": url, "allow_actions": allow_actions}))
    else:
        echo(f"open {url}")
        echo("actions are allowed" if allow_actions else "read-only. --allow-actions allows actions")
        if host not in _LOOPBACK:
            echo(f"other machines can reach {host}: put a proxy with TLS in front of it", err=True)
    sys.stdout.flush()
