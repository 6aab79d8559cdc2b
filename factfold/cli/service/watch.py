"""`factfold watch`: metrics of what is no single runner's, and the files for Prometheus and Grafana.

`factfold console`: the pages of a service in a browser.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import eventstore
from eventstore.extras import require_extra
from factfold import on_demand
from factfold.cli.cdc.connectors import Sides
from factfold.cli.definitions import complete_package, find_definitions
from factfold.cli.events.store import MaybeStore, existing_store
from factfold.cli.events.subscriptions import Database as InboxUrl
from factfold.cli.options import Commands, argument, option, setting
from factfold.cli.running import LOCAL, MetricsHost, MetricsPort, brokers_are_named, log_to_stderr, stop_on_signal
from factfold.cli.show import Out, echo
from factfold.cli.views.projections import log_of, opened_views
from factfold.console.parts import Places
from factfold.console.sources import Sources
from factfold.scaffolding import write_monitoring

if TYPE_CHECKING:
    from cdc.changes.change_records import Lookup
    from eventstore import Settings
    from factfold.watching.metrics import WatchMetrics  # needs the extra metrics, and `watch export` does not

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


app = Commands("Metrics, and files for Prometheus and Grafana.")

# Prometheus' own exporters have ports from 9100, and 9464 is the one that OpenTelemetry's exporter for it uses.
_PORT: Final = 9464


@app.command()
def run(
    store: MaybeStore,
    out: Out,
    views_url: Annotated[str | None, setting("--views-url", "Where the views are, as for projections run.")] = None,
    kafka: Annotated[
        bool | None,
        option(
            "--kafka/--no-kafka",
            "Look at Kafka: dead-letter topics, and what waits for views. Default: unless all you name is SQLite.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[float, option("--every", "Seconds between two looks.", min=1)] = 15.0,
    metrics_port: MetricsPort = _PORT,
    metrics_host: MetricsHost = LOCAL,
) -> None:
    """Serve metrics of a store, of dead letters and of the freshness of views until a signal comes.

    It looks at the store of --store-url and the views of --views-url. Their runners need not run.
    """
    from factfold.watching.metrics import WatchMetrics  # needs the extra metrics

    if store.database is None and views_url is None and not kafka:
        raise typer.BadParameter("name what to watch: --store-url, --views-url or --kafka")
    named = [url for url in (store.database, views_url) if url is not None]
    asked = kafka if kafka is not None else not all(url.startswith("sqlite") for url in named)
    stop, metrics = stop_on_signal(), WatchMetrics()
    with ExitStack() as opened:
        looks = _looks(opened, metrics, eventstore.Settings() if asked else None, store, views_url)
        port = opened.enter_context(
            on_demand.serve_metrics(metrics, port=_PORT if metrics_port is None else metrics_port, host=metrics_host)
        )
        for look in looks:
            opened.enter_context(on_demand.refreshing(metrics, look, every=every))
        out.state("watching", f"metrics at http://{metrics_host}:{port}/metrics", port=port)
        stop.wait()


@app.command()
def export(folder: Annotated[Path, argument("The folder, made if it is missing.")], out: Out) -> None:
    """Write the alert rules for Prometheus and the dashboard for Grafana into a folder. Existing files are replaced."""
    written = [str(file) for file in write_monitoring(folder)]
    out.show({"files": written}, written)


def _looks(
    opened: ExitStack, metrics: WatchMetrics, settings: Settings | None, place: MaybeStore, views_url: str | None
) -> list[Callable[[], None]]:
    """Each in a thread of its own: a broker that is away must not hide the store."""
    from factfold.watching.metrics import Letters, look_at_store, look_at_views  # the same extra

    store = None if place.database is None else opened.enter_context(existing_store(place.database, place.schema))
    letters, looks = Letters(metrics), list[Callable[[], None]]()
    if settings is not None:
        looks.append(partial(letters.look_at_topics, settings))
    if store is not None:
        looks += [partial(letters.look_at_store, store), partial(look_at_store, metrics, store)]
    if views_url is not None:
        views = opened.enter_context(opened_views(views_url))
        log, schemas = _open_log(views_url, settings), _schemas(opened, settings)
        look = partial(look_at_views, metrics, views, log, schemas=schemas)
        looks += [partial(letters.look_at_views, views), look]
    return looks


def _open_log(views_url: str, settings: Settings | None) -> Callable[[], Any] | None:
    if settings is None and on_demand.sqlite_path(views_url) is None:
        return None
    return log_of(views_url, settings).open


def _schemas(opened: ExitStack, settings: Settings | None) -> Lookup | None:
    """Schemas of changelogs in Avro, if the settings name a registry."""
    if settings is None or settings.registry is None:
        return None
    return opened.enter_context(on_demand.ConfluentRegistry(settings.registry)).schema
