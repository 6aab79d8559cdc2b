"""`factfold cdc compare`: captured tables held against the states of projection groups, and repaired.

`factfold cdc snapshot` and `factfold cdc notifications`: tables read again while their connector streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import cdc
import eventstore
import projections
from cdc import compare_embedded
from cdc.source.notifications import Notification, NotificationReader, Stage
from cdc.source.signal_table import not_declared
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.cdc.connectors import (
    ConnectUrl,
    Declared,
    Reference,
    Stack,
    database,
    declared,
    maybe_database,
    of_its_own,
    worker,
)
from factfold.cli.cdc.operate import app  # one app, which the modules of this folder fill
from factfold.cli.options import Commands, argument, definition, option, setting
from factfold.cli.running import MetricsFile, brokers_are_named, stop_on_signal
from factfold.cli.show import Out, aligned, answer, progress
from factfold.cli.views.projections import load_group
from factfold.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from cdc import Connector, PostgresSource
    from cdc.changes.change_records import Lookup
    from cdc.comparing.report import ComparisonProgress, OnProgress, StateTable, TableComparison
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


_KINDS: Final = {
    "missing": "in the source alone",
    "extra": "in the state alone",
    "differing": "with other values",
    "changing": "changing too often to tell",
}


@app.command()
def compare(
    views_url: Annotated[str, setting("--views-url", "SQLAlchemy URL of the views' database.")],
    groups: Annotated[
        list[str], definition("A projection group, as module:name. May be repeated.", "projections", name="--group")
    ],
    out: Out,
    reference: Annotated[
        str | None,
        argument(
            "A .toml file, or module:attribute: a connector, several, or a function that gives them."
            " None for a SQLite file, which holds everything."
        ),
    ] = None,
    source_url: Annotated[
        str | None,
        setting("--source-url", "SQLAlchemy URL of the captured database, for a role that may read the tables."),
    ] = None,
    tables: Annotated[list[str] | None, option("--table", "schema.table. May be repeated. Default: all.")] = None,
    repair: Annotated[
        bool, option("--repair", "Read the rows that differ again by signal, and compare them once more.")
    ] = False,
    show: Annotated[int, option("--show", "Keys of each kind to show.", min=0)] = 10,
    timeout: Annotated[float, option("--timeout", "Seconds to wait for a connector or a state.", min=1)] = 120.0,
    connect_url: ConnectUrl = None,
    stack: Stack = None,
    metrics_file: MetricsFile = None,
) -> None:
    """Compare captured tables with the states made of them, row by row. Exit code 0 if equal, 3 if not."""
    comparisons: list[TableComparison] = []
    with ExitStack() as opened:
        states = _states(opened, views_url, groups)
        on_progress = opened.enter_context(watched())
        if reference is None and all(state.is_embedded for state in states):
            comparisons += compare_embedded(
                states, tables=tables, patience=timeout, repair=repair, on_progress=on_progress
            )
        else:
            named, url = _given(reference, source_url)
            engine, settings = opened.enter_context(database(url)), brokers()
            for source, chosen in _sources(declared(named, stack), named, engine, tables):
                signals = None
                if repair:
                    client = opened.enter_context(worker(connect_url, stack=stack))
                    signals = cdc.Signals(engine, source, settings, client, schemas=schemas_of(settings))
                comparisons += cdc.compare_tables(
                    engine, source, states, settings, tables=chosen, patience=timeout, repair=signals,
                    on_progress=on_progress,
                )  # fmt: skip
    _require_compared(comparisons, groups)
    if metrics_file is not None:
        from factfold.watching.metrics import CompareMetrics  # needs the extra metrics

        CompareMetrics().write(str(metrics_file), comparisons)
    out.each((as_plain(one, show=show) for one in comparisons), lines_of(comparisons, show=show))
    answer(all(one.equal for one in comparisons))


def _given(reference: str | None, source_url: str | None) -> tuple[str, str]:
    """The connectors and their database, which a comparison on servers needs."""
    if reference is None:
        raise typer.BadParameter("name the connectors, as module:attribute: the state is not in a SQLite file")
    if source_url is None:
        raise typer.BadParameter("give --source-url, the URL of the captured database")
    return reference, source_url


def _states(opened: ExitStack, views_url: str, groups: list[str]) -> list[StateTable]:
    compared = [opened.enter_context(projections.ComparedGroup(views_url, load_group(group))) for group in groups]
    return [table for group in compared for table in group.tables]


def _sources(
    connectors: Iterable[Connector], reference: str, engine: Engine, tables: list[str] | None
) -> list[tuple[cdc.PostgresSource, list[str]]]:
    """The sources of this database, each with the tables that are asked for; DeclarationError, InvalidConnector."""
    ours = [
        one
        for one in connectors
        if isinstance(one, cdc.PostgresSource) and of_its_own(engine, one.config())[0] is not None
    ]
    if not ours:
        raise DeclarationError(
            f"{reference!r} gives no PostgresSource that reads the database {engine.url.database}",
            remedy="give --source-url of the database that its connector reads, or the reference of that connector",
        )
    unknown = [table for table in tables or () if not any(table in one.tables for one in ours)]
    for table in unknown:
        ours[0].topic(table)  # says which tables there are
    chosen = ((one, [table for table in one.tables if table in (tables or one.tables)]) for one in ours)
    return [(one, names) for one, names in chosen if names]


def _require_compared(comparisons: Sequence[TableComparison], groups: list[str]) -> None:
    if not any(one.is_compared for one in comparisons):
        raise DeclarationError(
            f"no state of {', '.join(groups)} is made from {', '.join(one.table for one in comparisons)}",
            remedy="name a group with a Table.from_changelog over one of their topics",
        )


@contextmanager
def watched() -> Iterator[OnProgress]:
    """Show progress on stderr: a bar on a terminal after two seconds, else a line every ten."""
    with progress("comparing") as tell:

        def on_progress(now: ComparisonProgress) -> None:
            tell(now.rows, now.total, f"{now.table}: {now.step}", "rows")

        yield on_progress


def as_plain(comparison: TableComparison, *, show: int) -> dict[str, Any]:
    """A comparison as JSON has it: of each kind the number of keys, and some of them."""

    def of(*names: str) -> dict[str, Any]:
        return {name: getattr(comparison, name) for name in names}

    differing = list(comparison.differing_columns.items())[:show]
    return {
        **of("table", "state", "equal", "source_rows", "state_rows", "chunks"),
        **{kind: len(getattr(comparison, kind)) for kind in _KINDS},
        "keys": {kind: [_named(comparison, key) for key in getattr(comparison, kind)[:show]] for kind in _KINDS},
        "differing_columns": [{"key": _named(comparison, key), "columns": list(names)} for key, names in differing],
        **of("faults", "notes", "not_compared", "repaired", "unrepaired"),
    }


def lines_of(comparisons: Iterable[TableComparison], *, show: int) -> Iterator[str]:
    """Yield a table of what was compared, and below it what differs, by key."""
    tables = list(comparisons)
    heading = ("table", "state", "rows", "in state", *_KINDS, "result")
    yield from aligned([heading, *map(_cells, tables)])
    yield from (f"  {line}" for one in tables for line in _details(one, show))


def _cells(one: TableComparison) -> tuple[str, ...]:
    counts = [f"{len(getattr(one, kind)):,}" for kind in _KINDS]
    result = "DIFFERS" if not one.equal else "equal" if one.is_compared else "not compared"
    repaired = f", {one.repaired:,} repaired" if one.repaired else ""
    return (one.table, one.state, f"{one.source_rows:,}", f"{one.state_rows:,}", *counts, f"{result}{repaired}")


def _details(one: TableComparison, show: int) -> Iterator[str]:
    yield from (f"{one.table}: {fault}" for fault in one.faults)
    for kind, meaning in _KINDS.items():
        keys = getattr(one, kind)
        for key in keys[:show]:
            columns = ", ".join(one.differing_columns.get(key, ())) if kind == "differing" else ""
            named = ", ".join(f"{name}={value}" for name, value in _named(one, key).items())
            yield f"{one.table}: {named} {meaning}{columns and f': {columns}'}"
        if len(keys) > show:
            yield f"{one.table}: {len(keys) - show:,} more {meaning}"
    if one.unrepaired:
        yield f"{one.table}: not repaired: {one.unrepaired}"
    yield from (f"{one.table}: column {name} is not compared: {why}" for name, why in one.not_compared.items())
    yield from (f"{one.table}: note: {note}" for note in one.notes)


def _named(comparison: TableComparison, key: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(comparison.key, key, strict=True))
