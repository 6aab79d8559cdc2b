"""`factfold cdc snapshot` and `factfold cdc notifications`: tables read again while their connector streams."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import cdc
import eventstore
from cdc.source.signal_table import not_declared
from factfold import on_demand
from factfold.cli.brokers import brokers_are_named
from factfold.cli.cdc.connectors import ConnectUrl, Json, Reference, Stack, declared, maybe_database, worker
from factfold.cli.cdc.operate import app  # one app, which five modules fill in turn
from factfold.cli.given_options import with_options
from factfold.cli.shown_values import echo
from factfold.cli.signals import stop_on_signal
from factfold.stack import LocalStack

if TYPE_CHECKING:
    from cdc import PostgresSource
    from cdc.changes.change_records import Lookup
    from cdc.source.notifications import Notification
    from eventstore.settings import Settings

__all__ = ["app"]

snapshot = typer.Typer(help="Tables read again while their connector streams.", no_args_is_help=True)
app.add_typer(snapshot, name="snapshot")

Source = Annotated[
    str,
    typer.Option(
        "--source-url", envvar="FACTFOLD_SOURCE_URL", help="SQLAlchemy URL with a role that may insert signals there."
    ),
]
Tables = Annotated[list[str] | None, typer.Option("--table", help="schema.table. May be repeated. Default: all.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="schema.table=CONDITION: SQL that the connector runs as its role. May be repeated."),
]
Answer = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for the connector's answer.")]


@dataclasses.dataclass(frozen=True)
class Road:
    """The roads to a connector: its declaration, its source, and its worker."""

    reference: Reference
    source_url: Source
    connect_url: ConnectUrl = None
    stack: Stack = None


@snapshot.command()
@with_options
def take(
    road: Road,
    tables: Tables = None,
    where: Where = None,
    blocking: Annotated[bool, typer.Option("--blocking", help="In one pass, during which changes wait.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until every table is read.")] = True,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for the whole snapshot.")] = 3600.0,
    as_json: Json = False,
) -> None:
    """Read tables again, or the rows of a condition, without stopping the connector."""
    with _signals(road) as signals:
        chosen, conditions = tables or list(signals.source.tables), dict(map(_condition, where or ()))
        ask = signals.blocking_snapshot if blocking else signals.snapshot
        asked = ask(chosen, where=conditions)
        if not wait:
            asked.close()
            echo(json.dumps({"signal": asked.id}) if as_json else f"{signals.source.name}  asked, {asked.id}")
            return
        with _progress(chosen, quiet=as_json) as listen:
            read = asked.wait(timeout=timeout, on_notification=listen)
    for one in read:
        echo(json.dumps(dataclasses.asdict(one)) if as_json else f"{one.table}  {one.rows:,} rows read")


@snapshot.command()
@with_options
def stop(
    road: Road,
    tables: Annotated[list[str] | None, typer.Option("--table", help="Leave out these tables, and go on.")] = None,
    timeout: Answer = 60.0,
    as_json: Json = False,
) -> None:
    """Stop the incremental snapshot. The rows that it has read stay."""
    with _signals(road) as signals:
        _tell(signals.stop(tables or (), timeout=timeout), as_json=as_json)


@snapshot.command()
@with_options
def pause(
    road: Road,
    timeout: Answer = 60.0,
    as_json: Json = False,
) -> None:
    """Pause the incremental snapshot. Changes go on arriving."""
    with _signals(road) as signals:
        _tell(signals.pause(timeout=timeout), as_json=as_json)


@snapshot.command()
@with_options
def resume(
    road: Road,
    timeout: Answer = 60.0,
    as_json: Json = False,
) -> None:
    """Resume a paused incremental snapshot."""
    with _signals(road) as signals:
        _tell(signals.resume(timeout=timeout), as_json=as_json)


@app.command()
def notifications(
    reference: Reference,
    stack: Stack = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until a signal comes.")] = False,
    as_json: Json = False,
) -> None:
    """Show a connector's notifications about its snapshots, the oldest first."""
    source = _source(reference, stack)
    stopped = stop_on_signal()
    topic, prefix, settings = _topic(source), source.topic_prefix, brokers()
    with cdc.NotificationReader(settings, topic, connector=prefix, whole=True, schemas=schemas_of(settings)) as reader:
        for one in reader.up_to_now():
            _tell(one, as_json=as_json)
        while follow and not stopped.is_set():
            for one in reader.poll(0.5):
                _tell(one, as_json=as_json)


@contextmanager
def _signals(road: Road) -> Iterator[cdc.Signals]:
    with worker(road.connect_url, stack=road.stack) as client, maybe_database(road.source_url) as engine:
        if engine is None:
            raise typer.BadParameter("--source-url is empty")
        settings = brokers()
        yield cdc.Signals(engine, _source(road.reference, road.stack), settings, client, schemas=schemas_of(settings))


def _source(reference: str, stack: str | None) -> cdc.PostgresSource:
    sources = [one for one in declared(reference, stack) if isinstance(one, cdc.PostgresSource)]
    if len(sources) != 1:
        raise typer.BadParameter(f"{reference!r} gives {len(sources)} sources of PostgreSQL. Name the one meant")
    return sources[0]


def _topic(source: PostgresSource) -> str:
    if source.notifications_topic is None:
        raise not_declared(source.name, "notifications_topic")
    return source.notifications_topic


def brokers() -> eventstore.Settings:
    """Settings of the brokers: the environment's, or the local stack's."""
    if brokers_are_named():
        return eventstore.Settings()
    return eventstore.Settings.for_broker(LocalStack().info.bootstrap_servers)


def schemas_of(settings: Settings) -> Lookup | None:
    """Where the schemas of Avro records are, if the settings name a registry."""
    registry = on_demand.configured_registry(settings)
    return None if registry is None else registry.schema


def _condition(text: str) -> tuple[str, str]:
    table, equals, condition = text.partition("=")
    if not (equals and condition.strip()):
        raise typer.BadParameter(f"{text!r} is not schema.table=CONDITION")
    return table.strip(), condition.strip()


@contextmanager
def _progress(tables: list[str], *, quiet: bool) -> Iterator[Callable[[Notification], None]]:
    """Show the chunk at hand on a terminal, and a line for each table that is read."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    done: list[str] = []
    with console.status(f"{len(tables)} tables: waiting for the connector") as shown:

        def listen(heard: Notification) -> None:
            if heard.stage == cdc.Stage.TABLE_SCAN_COMPLETED and heard.table in tables:
                done.append(heard.table)
                console.print(f"{heard.table}: {heard.status}, {len(done)} of {len(tables)} tables")
            chunk = f", chunk {heard.chunk} of {heard.chunks}" if heard.chunks else ""
            shown.update(f"{len(done)} of {len(tables)} tables, {heard.table or heard.stage}{chunk}")

        yield listen


def _tell(heard: Notification, *, as_json: bool) -> None:
    if as_json:
        described: dict[str, Any] = dataclasses.asdict(heard) | {"time": heard.time.isoformat()}
        echo(json.dumps({key: value for key, value in described.items() if value not in (None, ())}))
    else:
        words = [heard.table or ", ".join(heard.tables), heard.status or ""]
        words += [f"{heard.rows:,} rows"] if heard.rows is not None else []
        words += [f"chunk {heard.chunk} of {heard.chunks}"] if heard.chunks else []
        echo("  ".join([heard.time.strftime("%F %T"), heard.kind, heard.stage, *filter(None, words)]))
    sys.stdout.flush()
