"""`factfold cdc compare`: captured tables held against the states of projection groups, and repaired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import cdc
import projections
from cdc import compare_embedded
from eventstore.errors import DeclarationError
from factfold.cli.cdc.connectors import ConnectUrl, Stack, database, declared, of_its_own, worker
from factfold.cli.cdc.signals import app, brokers, schemas_of  # one app, which the modules of commands fill in turn
from factfold.cli.options import argument, definition, option, setting
from factfold.cli.running import MetricsFile
from factfold.cli.show import Out, aligned, answer, progress
from factfold.cli.views.projections import load_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from cdc import Connector
    from cdc.comparing.report import ComparisonProgress, OnProgress, StateTable, TableComparison

__all__ = ["app"]

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
        from factfold.watching.results import write_compared  # needs the extra metrics

        write_compared(str(metrics_file), comparisons)
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
    keys = {kind: _shown(comparison, kind, show) for kind in _KINDS}
    columns = [
        {"key": _named(comparison, key), "columns": list(names)} for key, names in comparison.differing_columns.items()
    ]
    return {
        "table": comparison.table,
        "state": comparison.state,
        "equal": comparison.equal,
        "source_rows": comparison.source_rows,
        "state_rows": comparison.state_rows,
        "chunks": comparison.chunks,
        **{kind: len(getattr(comparison, kind)) for kind in _KINDS},
        "keys": keys,
        "differing_columns": columns[:show],
        "faults": list(comparison.faults),
        "notes": list(comparison.notes),
        "not_compared": dict(comparison.not_compared),
        "repaired": comparison.repaired,
        "unrepaired": comparison.unrepaired,
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


def _shown(comparison: TableComparison, kind: str, show: int) -> list[Mapping[str, str]]:
    return [_named(comparison, key) for key in getattr(comparison, kind)[:show]]


def _named(comparison: TableComparison, key: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(comparison.key, key, strict=True))
