"""`factfold cdc snapshot` and `factfold cdc notifications`: tables read again while their connector streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

import cdc
import eventstore
from cdc.source.notifications import Notification, NotificationReader, Stage
from cdc.source.signal_table import not_declared
from factfold import on_demand
from factfold.cli.cdc.connectors import Declared, Reference, Stack, declared, maybe_database
from factfold.cli.cdc.operate import app  # one app, which five modules fill in turn
from factfold.cli.options import Commands, option, setting
from factfold.cli.running import brokers_are_named, stop_on_signal
from factfold.cli.show import Out
from factfold.stack import LocalStack

if TYPE_CHECKING:
    from cdc import PostgresSource
    from cdc.changes.change_records import Lookup
    from eventstore.settings import Settings

__all__ = ["app"]

snapshot = Commands("Tables read again while their connector streams.")
app.add_typer(snapshot, name="snapshot")

Answer = Annotated[float, option("--timeout", "Seconds for the connector's answer.", min=0.1)]


@dataclass(frozen=True)
class Road:
    """The roads to a connector: its declaration with its worker, and its source."""

    of: Declared
    source_url: Annotated[str, setting("--source-url", "SQLAlchemy URL with a role that may insert signals there.")]

    @contextmanager
    def signals(self) -> Iterator[cdc.Signals]:
        """Open them to send signals."""
        with self.of.worker() as client, maybe_database(self.source_url) as engine:
            if engine is None:
                raise typer.BadParameter("--source-url is empty")
            settings = brokers()
            source = _source(self.of.reference, self.of.stack)
            yield cdc.Signals(engine, source, settings, client, schemas=schemas_of(settings))


@snapshot.command()
def take(
    road: Road,
    out: Out,
    tables: Annotated[list[str] | None, option("--table", "schema.table. May be repeated. Default: all.")] = None,
    where: Annotated[
        list[str] | None,
        option("--where", "schema.table=CONDITION: SQL that the connector runs as its role. May be repeated."),
    ] = None,
    blocking: Annotated[bool, option("--blocking", "In one pass, during which changes wait.")] = False,
    wait: Annotated[bool, option("--wait/--no-wait", "Wait until every table is read.")] = True,
    timeout: Annotated[float, option("--timeout", "Seconds for the whole snapshot.", min=1)] = 3600.0,
) -> None:
    """Read tables again, or the rows of a condition, without stopping the connector."""
    with road.signals() as signals:
        chosen, conditions = tables or list(signals.source.tables), dict(map(_condition, where or ()))
        ask = signals.blocking_snapshot if blocking else signals.snapshot
        asked = ask(chosen, where=conditions)
        if not wait:
            asked.close()
            out.show({"signal": asked.id}, f"{signals.source.name}  asked, {asked.id}")
            return
        with _progress(chosen, quiet=out.as_json) as listen:
            read = asked.wait(timeout=timeout, on_notification=listen)
    for one in read:
        out.show(one, f"{one.table}  {one.rows:,} rows read")


@snapshot.command()
def stop(
    road: Road,
    out: Out,
    tables: Annotated[list[str] | None, option("--table", "Leave out these tables, and go on.")] = None,
    timeout: Answer = 60.0,
) -> None:
    """Stop the incremental snapshot. The rows that it has read stay."""
    with road.signals() as signals:
        _tell(signals.stop(tables or (), timeout=timeout), out)


@snapshot.command()
def pause(road: Road, out: Out, timeout: Answer = 60.0) -> None:
    """Pause the incremental snapshot. Changes go on arriving."""
    with road.signals() as signals:
        _tell(signals.pause(timeout=timeout), out)


@snapshot.command()
def resume(road: Road, out: Out, timeout: Answer = 60.0) -> None:
    """Resume a paused incremental snapshot."""
    with road.signals() as signals:
        _tell(signals.resume(timeout=timeout), out)


@app.command()
def notifications(
    reference: Reference,
    out: Out,
    stack: Stack = None,
    follow: Annotated[bool, option("--follow", "Go on until a signal comes.")] = False,
) -> None:
    """Show a connector's notifications about its snapshots, the oldest first."""
    source = _source(reference, stack)
    stopped = stop_on_signal()
    topic, prefix, settings = _topic(source), source.topic_prefix, brokers()
    with NotificationReader(settings, topic, connector=prefix, whole=True, schemas=schemas_of(settings)) as reader:
        for one in reader.up_to_now():
            _tell(one, out)
        while follow and not stopped.is_set():
            for one in reader.poll(0.5):
                _tell(one, out)


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
            if heard.stage == Stage.TABLE_SCAN_COMPLETED and heard.table in tables:
                done.append(heard.table)
                console.print(f"{heard.table}: {heard.status}, {len(done)} of {len(tables)} tables")
            chunk = f", chunk {heard.chunk} of {heard.chunks}" if heard.chunks else ""
            shown.update(f"{len(done)} of {len(tables)} tables, {heard.table or heard.stage}{chunk}")

        yield listen


def _tell(heard: Notification, out: Out) -> None:
    words = [heard.table or ", ".join(heard.tables), heard.status or ""]
    words += [f"{heard.rows:,} rows"] if heard.rows is not None else []
    words += [f"chunk {heard.chunk} of {heard.chunks}"] if heard.chunks else []
    fields = {name: value for name, value in asdict(heard).items() if value not in (None, ())}
    out.show(fields, "  ".join([heard.time.strftime("%F %T"), heard.kind, heard.stage, *filter(None, words)]))
