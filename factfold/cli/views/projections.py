"""`factfold projections`: rebuild, run, verify."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import projections
from eventstore import Restarts
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.definitions import load_definition
from factfold.cli.keys import StoredKeys
from factfold.cli.options import Commands, Memory, Views, definition, option, setting
from factfold.cli.running import MetricsFile, Running, ended_by_signals, reached_settings, stop_on_signal
from factfold.cli.show import Out, answer, progress
from factfold.cli.views.comparisons import as_plain, comparison_lines, row_lines, without_personal
from factfold.cli.views.opened_views import require_file, require_same_definition
from factfold.stack import delta_jars, spark_jars
from factfold.stack.java import require_java
from projections.errors import NoServingGeneration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projections import BatchReport, Environment, ProjectionGroup, ViewVerdict
    from projections.lifecycle.building import OnProgress, RebuildProgress
    from projections.lifecycle.rebuild import RebuildReport

app = Commands("Views: build them, keep them up to date, prove them.")

Group = Annotated[str, definition("The projection group, as module:name.", "projections", metavar="MODULE:GROUP")]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where views are, and what their rows are read and opened with."""

    views_url: Views
    memory: Memory = "2g"
    stored: StoredKeys = dataclasses.field(default_factory=StoredKeys)
    archive: Annotated[
        str | None, setting("--archive", "Archive of the topics (factfold archive): what it holds is read from there.")
    ] = None


@app.command()
def rebuild(
    group: Group,
    place: Place,
    out: Out,
    cut_over: Annotated[
        bool | None,
        option(
            "--cutover/--no-cutover",
            "Let the new views serve even if rows differ, or leave that to diff and cutover. "
            "Default: they serve, unless rows of an unchanged definition differ.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Build the group's views from the whole log, next to those that serve. Then compare the two, and switch.

    Exit code 3 if rows of an unchanged definition differ: the new views then do not serve. Rows of a changed definition
    may differ. A rebuild that was killed goes on from what it had committed.
    """
    definition = load_group(group)
    with opened_environment(definition, place) as environment:
        with rebuild_progress(definition.name) as on_progress:
            report = projections.rebuild(environment, definition, cut_over=cut_over, on_progress=on_progress)
        if report.comparison is not None:
            masked = without_personal(report.comparison, environment, definition)
            report = dataclasses.replace(report, comparison=masked)
    compared = None if report.comparison is None else as_plain(report.comparison)
    figures = {"records_per_second": round(report.records_per_second), "comparison": compared}
    out.show(dataclasses.asdict(report) | figures, _report_lines(report, definition, group), indent=2)
    answer(not report.withheld)


def _report_lines(report: RebuildReport, definition: ProjectionGroup, group: str) -> Iterator[str]:
    rows = ", ".join(f"{view.name} {report.rows[view.name]:,} rows" for view in definition.views)
    resumed = ", resumed" if report.resumed else ""
    yield f"generation {report.generation}{resumed}: {rows}; {report.records_per_second:,.0f} records/s"
    yield from comparison_lines(report.comparison or {})
    if report.not_compared:
        yield f"not compared: {report.not_compared}"
    yield _end_in_words(report, group)


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
def run(
    group: Group,
    place: Place,
    running: Running,
    out: Out,
    once: Annotated[bool, option("--once", "Stop when the view has caught up.")] = False,
) -> None:
    """Keep the group's views up to date until a signal comes. Builds them first if there are none.

    After a cut-over it goes on with the generation that serves now.
    """
    definition, stop = load_group(group), stop_on_signal()
    with ExitStack() as opened:
        metrics = opened.enter_context(running.metrics(lambda: projections.RunMetrics(definition.name)))
        environment = opened.enter_context(opened_environment(definition, place))
        stop_on_signal(stop)
        follower = projections.Follower(
            environment=environment,
            group=definition,
            policy=Restarts(limit=running.restarts),
            metrics=metrics,
            on_open=lambda _: out.state("catching up" if once else "following"),
            on_batch=lambda report: out.show(report, _batch_line(report)),
        )
        work = follower.catch_up if once else follower.run
        try:
            work(stop=stop)
        except NoServingGeneration:
            follower.outwait(partial(_build, environment, definition), stop=stop)
            work(stop=stop)


def _build(environment: Environment, definition: ProjectionGroup) -> None:
    with ended_by_signals(), rebuild_progress(definition.name) as on_progress:
        projections.rebuild(environment, definition, on_progress=on_progress)


def _batch_line(report: BatchReport) -> str:
    return (
        f"{report.records} records: {report.upserts} rows written, {report.retractions} retracted, "
        f"{f'{report.published} published, ' * bool(report.published)}"
        f"{sum(report.set_aside.values())} records set aside, {report.total_seconds:.2f} s; "
        f"{report.lag_offsets:,} offsets wait, {report.lag_seconds:.1f} s"
    )


@app.command()
def verify(group: Group, place: Place, out: Out, metrics_file: MetricsFile = None) -> None:
    """Compare each view with a recomputation from the log. Exit code 3 if a row differs."""
    definition = load_group(group)
    require_same_definition(place.views_url, definition)
    with opened_environment(definition, place) as environment:
        began = time.perf_counter()
        verdicts = without_personal(projections.verify(environment, definition), environment, definition)
    if metrics_file is not None:
        from factfold.watching.results import write_verified  # needs the extra metrics

        write_verified(str(metrics_file), definition.name, verdicts, seconds=time.perf_counter() - began)
    out.show(as_plain(verdicts), _verdict_lines(verdicts), indent=2)
    answer(all(verdict.equal for verdict in verdicts.values()))


def _verdict_lines(verdicts: Mapping[str, ViewVerdict]) -> Iterator[str]:
    for name, verdict in verdicts.items():
        outcome = "equal" if verdict.equal else f"DIFFERS at keys {', '.join(map(str, verdict.differing_keys))}"
        yield f"{name}: {verdict.rows:,} rows, recomputed {verdict.recomputed_rows:,}: {outcome}"
        for row in verdict.differing:
            yield from row_lines(row, "live", "recomputed")


@contextmanager
def rebuild_progress(group: str) -> Iterator[OnProgress]:
    """Show the progress of a group's rebuild on stderr while the block runs."""
    with progress(f"{group}: starting", at_once=True) as tell:

        def on_progress(now: RebuildProgress) -> None:
            known = now.seconds_left is not None and now.records < now.total
            rate = f", {now.records_per_second:,.0f} records/s, {now.seconds_left:,.0f} s left" if known else ""
            tell(now.records, now.total, f"{group}: {now.step}", f"records{rate}")

        yield on_progress


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
    with place.stored.opened(place.views_url if embedded else None) as keys:
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
