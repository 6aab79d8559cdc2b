"""`factfold projections`: rebuild, run, verify."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import projections
from eventstore import Restarts
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.brokers import reached_settings
from factfold.cli.cdc.comparisons import DIFFERS, as_plain, print_comparison, print_row, without_personal
from factfold.cli.completions import completes
from factfold.cli.definitions import load_definition
from factfold.cli.given_options import with_options
from factfold.cli.keys import KeysUrl, MasterKeysIfAny, open_keys
from factfold.cli.logs import log_to_stderr
from factfold.cli.metrics import LOCAL, MetricsFile, MetricsHost, MetricsPort, served_metrics
from factfold.cli.restarts import LIMIT, RestartLimit
from factfold.cli.shown_values import echo
from factfold.cli.signals import ended_by_signals, stop_on_signal
from factfold.cli.views.opened_views import require_file, require_same_definition
from factfold.cli.views.rebuild_display import shown
from factfold.stack import delta_jars, spark_jars
from factfold.stack.java import require_java
from projections import NoServingGeneration

if TYPE_CHECKING:
    from projections import Environment, ProjectionGroup, RebuildReport
    from projections.spark.live.incremental import BatchReport

app = typer.Typer(help="Views: build them, keep them up to date, prove them.", no_args_is_help=True)

Group = Annotated[
    str,
    typer.Argument(
        help="The projection group, as module:name.", metavar="MODULE:GROUP", autocompletion=completes("projections")
    ),
]
Views = Annotated[
    str,
    typer.Option(
        "--views-url",
        envvar="FACTFOLD_VIEWS_URL",
        help="Where the views are: SQLAlchemy URL of a database."
        " sqlite:///shop.db holds everything and needs no Kafka.",
    ),
]
Memory = Annotated[str, typer.Option("--memory", help="Heap of the Spark driver.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Archived = Annotated[
    str | None,
    typer.Option(
        "--archive",
        envvar="FACTFOLD_ARCHIVE",
        help="Archive of the topics (factfold archive): what it holds is read from there.",
    ),
]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where views are, and what their rows are read and opened with."""

    views_url: Views
    memory: Memory = "2g"
    master_keys: MasterKeysIfAny = None
    keys_url: KeysUrl = None
    archive: Archived = None


@app.callback()
def _group() -> None:
    """Views: build them, keep them up to date, prove them."""
    log_to_stderr()


@app.command()
@with_options
def rebuild(
    group: Group,
    place: Place,
    cut_over: Annotated[
        bool | None,
        typer.Option(
            "--cutover/--no-cutover",
            help="Let the new views serve even if rows differ, or leave that to diff and cutover. "
            "Default: they serve, unless rows of an unchanged definition differ.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build the group's views from the whole log, next to those that serve. Then compare the two, and switch.

    Exit code 3 if rows of an unchanged definition differ: the new views then do not serve. Rows of a changed definition
    may differ. A rebuild that was killed goes on from what it had committed.
    """
    definition = load_group(group)

    with opened_environment(definition, place) as environment:
        with shown(definition.name) as on_progress:
            report = projections.rebuild(environment, definition, cut_over=cut_over, on_progress=on_progress)
        if report.comparison is not None:
            masked = without_personal(report.comparison, environment, definition)
            report = dataclasses.replace(report, comparison=masked)
    if as_json:
        compared = None if report.comparison is None else as_plain(report.comparison)
        figures = {"records_per_second": round(report.records_per_second), "comparison": compared}
        print_json(dataclasses.asdict(report) | figures)
    else:
        _print_report(report, [view.name for view in definition.views], group)
    if report.withheld:
        raise typer.Exit(DIFFERS)


def _print_report(report: RebuildReport, views: list[str], group: str) -> None:
    rows = ", ".join(f"{view} {report.rows[view]:,} rows" for view in views)
    resumed = ", resumed" if report.resumed else ""
    echo(f"generation {report.generation}{resumed}: {rows}; {report.records_per_second:,.0f} records/s")
    if report.comparison is not None:
        print_comparison(report.comparison)
    if report.not_compared:
        echo(f"not compared: {report.not_compared}")
    echo(_end_in_words(report, group))


def _end_in_words(report: RebuildReport, group: str) -> str:
    if report.serves:
        return "it serves"
    if not report.withheld:
        return f"it does not serve yet: factfold projections diff {group}, then cutover"
    return (
        "it does not serve: the definition is unchanged, and its rows differ from the serving ones\n"
        f"remedy: find out which are right (factfold projections diff {group}), "
        f"then factfold projections cutover {group}, or drop"
    )


@app.command()
@with_options
def run(
    group: Group,
    place: Place,
    once: Annotated[bool, typer.Option("--once", help="Stop when the view has caught up.")] = False,
    restarts: RestartLimit = LIMIT,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    as_json: Json = False,
) -> None:
    """Keep the group's views up to date until a signal comes. Builds them first if there are none.

    After a cut-over it goes on with the generation that serves now.
    """
    definition, stop = load_group(group), stop_on_signal()

    with ExitStack() as opened:
        metrics = opened.enter_context(served_metrics(partial(_metrics, definition), metrics_port, metrics_host))
        environment = opened.enter_context(opened_environment(definition, place))
        stop_on_signal(stop)
        follower = projections.Follower(
            environment=environment,
            group=definition,
            policy=Restarts(limit=restarts),
            metrics=metrics,
            on_open=lambda _: _print_state("catching up" if once else "following", as_json=as_json),
            on_batch=lambda report: _tell_batch(report, as_json=as_json),
        )
        work = follower.catch_up if once else follower.run
        try:
            work(stop=stop)
        except NoServingGeneration:
            follower.outwait(partial(_build, environment, definition), stop=stop)
            work(stop=stop)


def _metrics(definition: ProjectionGroup) -> projections.RunMetrics:
    return projections.RunMetrics(definition.name)


def _build(environment: Environment, definition: ProjectionGroup) -> None:
    with ended_by_signals(), shown(definition.name) as on_progress:
        projections.rebuild(environment, definition, on_progress=on_progress)


def _print_state(state: str, *, as_json: bool) -> None:
    echo(json.dumps({"state": state}) if as_json else state, err=not as_json)
    sys.stdout.flush()


def _tell_batch(report: BatchReport, *, as_json: bool) -> None:
    if as_json:
        echo(json.dumps(dataclasses.asdict(report)))
    else:
        echo(
            f"{report.records} records: {report.upserts} rows written, {report.retractions} retracted, "
            f"{f'{report.published} published, ' * bool(report.published)}"
            f"{sum(report.set_aside.values())} records set aside, {report.total_seconds:.2f} s; "
            f"{report.lag_offsets:,} offsets wait, {report.lag_seconds:.1f} s"
        )
    sys.stdout.flush()


@app.command()
@with_options
def verify(
    group: Group,
    place: Place,
    metrics_file: MetricsFile = None,
    as_json: Json = False,
) -> None:
    """Compare each view with a recomputation from the log. Exit code 3 if a row differs."""
    definition = load_group(group)
    require_same_definition(place.views_url, definition)

    with opened_environment(definition, place) as environment:
        began = time.perf_counter()
        verdicts = without_personal(projections.verify(environment, definition), environment, definition)
    if metrics_file is not None:
        from factfold.watching.results import write_verified  # needs the extra metrics

        write_verified(str(metrics_file), definition.name, verdicts, seconds=time.perf_counter() - began)
    if as_json:
        print_json({name: dataclasses.asdict(v) | {"equal": v.equal} for name, v in verdicts.items()})
    for name, verdict in () if as_json else verdicts.items():
        outcome = "equal" if verdict.equal else f"DIFFERS at keys {', '.join(map(str, verdict.differing_keys))}"
        echo(f"{name}: {verdict.rows:,} rows, recomputed {verdict.recomputed_rows:,}: {outcome}")
        for row in verdict.differing:
            print_row(row, "live", "recomputed")
    if not all(verdict.equal for verdict in verdicts.values()):
        raise typer.Exit(DIFFERS)


def load_group(spec: str) -> projections.ProjectionGroup:
    """The group that `module:name` names; DeclarationError says which half is wrong."""
    return load_definition(spec, projections.ProjectionGroup, what="projection group", example="shop.views:shop")


@contextmanager
def opened_environment(group: ProjectionGroup, place: Place) -> Iterator[projections.Environment]:
    """The environment that a command's options describe, for one group."""
    require_java()
    lakes = on_demand.lakes_of(group.all_views)
    jars = [*spark_jars(), *delta_jars()] if place.archive is not None or lakes else spark_jars()
    embedded = on_demand.sqlite_path(place.views_url)
    if embedded and place.archive is not None:
        raise DeclarationError(
            "an archive is of Kafka's topics, and these views are read from an event store in their own file",
            remedy="leave --archive (FACTFOLD_ARCHIVE) away, or give the views a PostgreSQL database",
            place=embedded,
        )
    with open_keys(place.master_keys, place.keys_url or (place.views_url if embedded else None)) as keys:
        if embedded:
            require_file(embedded)
            environment = projections.Environment.embedded(embedded, jars=jars, memory=place.memory, keys=keys)
        else:
            environment = projections.Environment.open(
                reached_settings(without_kafka="views are in the event store's file: --views-url sqlite:///shop.db"),
                views_url=place.views_url,
                jars=jars,
                memory=place.memory,
                keys=keys,
                archive=place.archive,
            )
        with environment:
            yield environment


def print_json(value: Any) -> None:
    """Print a value as indented JSON; what JSON does not know as the text that topics of views have for it."""
    echo(json.dumps(_json_value(value), indent=2, default=str, allow_nan=False))


def _json_value(value: Any) -> Any:
    """With text for doubles that are no numbers, and for bytes."""
    if isinstance(value, dict):
        return {name: _json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value.hex() if isinstance(value, bytes | memoryview) else value
