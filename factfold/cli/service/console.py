"""`factfold console`: the pages of a service in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from eventstore.extras import require_extra
from factfold.cli.cdc.connectors import Sides
from factfold.cli.definitions import complete_package
from factfold.cli.events.store import MaybeStore
from factfold.cli.events.subscriptions import Database as InboxUrl
from factfold.cli.options import argument, option, setting
from factfold.cli.running import brokers_are_named, log_to_stderr, stop_on_signal
from factfold.cli.show import Out, echo
from factfold.console.definitions import find_definitions
from factfold.console.parts import Places
from factfold.console.sources import Sources

PORT: Final = 8700
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def console(
    store: MaybeStore,
    sides: Sides,
    targets: Annotated[
        list[str] | None,
        argument(
            "What the service declares: a package, a module, or a definition as module:name. May be several.",
            "PACKAGE",
            autocompletion=complete_package,
        ),
    ] = None,
    views_url: Annotated[str | None, setting("--views-url", "Where the views are.")] = None,
    inbox_url: InboxUrl = None,
    checkpoints: Annotated[Path | None, setting("--checkpoints", "Folder of the routers.")] = None,
    host: Annotated[str, option("--host", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "The port. 0 takes a free one.")] = PORT,
    allowed_hosts: Annotated[
        list[str] | None, option("--allow-host", "A further host and port that browsers use: console.internal:8700.")
    ] = None,
    allow_actions: Annotated[bool, option("--allow-actions", "Allow restarts, resets, replays and cut-overs.")] = False,
    as_json: Annotated[bool, option("--json", "Print the URL and write the log as JSON.")] = False,
) -> None:
    """Show a service in a browser: what runs, what is behind and why.

    Pages show events, views, processes, connectors and dead letters.

    The printed URL opens it, on this machine only unless --host names an address of its network. No page starts Spark.
    """
    require_extra("console")
    from factfold.console.server import Server  # needs the extra, and this command's help does without it

    log_to_stderr(as_json=as_json)
    places = Places(
        store_url=store.database, store_schema=store.schema, views_url=views_url, connect_url=sides.connect_url,
        source_url=sides.source_url, inbox_url=inbox_url, checkpoints=checkpoints, kafka=brokers_are_named(),
    )  # fmt: skip
    with Sources(places, find_definitions(targets or ())) as sources:
        server = Server(sources, host=host, port=port, also=allowed_hosts or (), allow_actions=allow_actions)
        said = "actions are allowed" if allow_actions else "read-only. --allow-actions allows actions"
        Out(as_json).show({"url": server.url, "allow_actions": allow_actions}, [f"open {server.url}", said])
        if host not in _LOOPBACK and not as_json:
            echo(f"other machines can reach {host}: put a proxy with TLS in front of it", err=True)
        server.run(stop_on_signal())
