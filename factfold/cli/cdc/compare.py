"""`factfold cdc compare`: captured tables held against the states of projection groups, and repaired."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

import cdc
import projections
from cdc import compare_embedded
from eventstore.errors import DeclarationError
from factfold.cli.cdc.comparison_display import as_plain, tell, watched
from factfold.cli.cdc.comparisons import DIFFERS
from factfold.cli.cdc.connectors import ConnectUrl, Json, Stack, database, declared, of_its_own, worker
from factfold.cli.cdc.signals import app, brokers, schemas_of  # one app, which the modules of commands fill in turn
from factfold.cli.completions import completes
from factfold.cli.metrics import MetricsFile
from factfold.cli.shown_values import echo
from factfold.cli.views.projections import load_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Engine

    from cdc import Connector, PostgresSource, TableComparison
    from cdc.comparing.report import OnProgress
    from cdc.comparing.state import StateTable
    from cdc.source.signals import Signals
    from eventstore.settings import Settings

__all__ = ["app"]

Reference = Annotated[
    str | None,
    typer.Argument(
        help="A .toml file, or module:attribute: a connector, several, or a function that gives them."
        " None for a SQLite file, which holds everything.",
        metavar="REFERENCE",
    ),
]
SourceUrl = Annotated[
    str | None,
    typer.Option(
        "--source-url",
        envvar="FACTFOLD_SOURCE_URL",
        help="SQLAlchemy URL of the captured database, for a role that may read the tables.",
    ),
]
ViewsUrl = Annotated[
    str,
    typer.Option("--views-url", envvar="FACTFOLD_VIEWS_URL", help="SQLAlchemy URL of the views' database."),
]
Groups = Annotated[
    list[str],
    typer.Option(
        "--group", help="A projection group, as module:name. May be repeated.", autocompletion=completes("projections")
    ),
]
Tables = Annotated[list[str] | None, typer.Option("--table", help="schema.table. May be repeated. Default: all.")]
Repair = Annotated[
    bool, typer.Option("--repair", help="Read the rows that differ again by signal, and compare them once more.")
]
Show = Annotated[int, typer.Option("--show", min=0, help="Keys of each kind to show.")]
Patience = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for a connector or a state.")]


@app.command()
def compare(
    views_url: ViewsUrl,
    groups: Groups,
    reference: Reference = None,
    source_url: SourceUrl = None,
    tables: Tables = None,
    repair: Repair = False,
    show: Show = 10,
    timeout: Patience = 120.0,
    connect_url: ConnectUrl = None,
    stack: Stack = None,
    metrics_file: MetricsFile = None,
    as_json: Json = False,
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
            engine = opened.enter_context(database(url))
            comparison = _Comparison(engine, states, brokers(), timeout, on_progress, stack)
            for source, chosen in _sources(declared(named, stack), named, engine, tables):
                signals = _signals(opened, comparison, source, connect_url) if repair else None
                comparisons += comparison.of(source, chosen, signals)
    _require_compared(comparisons, groups)
    if metrics_file is not None:
        from factfold.watching.results import write_compared  # needs the extra metrics

        write_compared(str(metrics_file), comparisons)
    if as_json:
        for one in comparisons:
            echo(json.dumps(as_plain(one, show=show)))
    else:
        tell(comparisons, show=show)
    if not all(one.equal for one in comparisons):
        raise typer.Exit(DIFFERS)


@dataclass(frozen=True)
class _Comparison:
    """What all sources of one command are compared with."""

    engine: Engine
    states: Sequence[StateTable]
    settings: Settings
    patience: float
    on_progress: OnProgress
    stack: str | None = None

    def of(self, source: PostgresSource, tables: Sequence[str], signals: Signals | None) -> Sequence[TableComparison]:
        """Compare some tables of a source."""
        return cdc.compare(
            self.engine,
            source,
            self.states,
            self.settings,
            tables=tables,
            patience=self.patience,
            repair=signals,
            on_progress=self.on_progress,
        )


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


def _signals(
    opened: ExitStack, comparison: _Comparison, source: PostgresSource, connect_url: str | None
) -> cdc.Signals:
    client, settings = opened.enter_context(worker(connect_url, stack=comparison.stack)), comparison.settings
    return cdc.Signals(comparison.engine, source, settings, client, schemas=schemas_of(settings))


def _require_compared(comparisons: Sequence[TableComparison], groups: list[str]) -> None:
    if not any(one.is_compared for one in comparisons):
        raise DeclarationError(
            f"no state of {', '.join(groups)} is made from {', '.join(one.table for one in comparisons)}",
            remedy="name a group with a Table.from_changelog over one of their topics",
        )
