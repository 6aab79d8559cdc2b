"""`factfold projections`: rebuild, run, verify.

The views of a command's URL and the log that they are made from, opened without Spark; how far runs are behind.

How comparisons of views look in a terminal and in JSON.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import eventstore
import projections
from eventstore import Restarts
from eventstore.delivery.source import MASK
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.definitions import load_definition
from factfold.cli.keys import StoredKeys
from factfold.cli.options import Commands, Memory, Views, definition, option, setting
from factfold.cli.running import MetricsFile, Running, ended_by_signals, reached_settings, stop_on_signal
from factfold.cli.show import Out, answer, progress
from factfold.stack import delta_jars, spark_jars
from factfold.stack.java import require_java
from projections.errors import NoServingGeneration, TableStoreUnavailable

if TYPE_CHECKING:
    from projections import BatchReport, Environment, ProjectionGroup, ViewVerdict
    from projections.lifecycle.cutover import ViewComparison
    from projections.lifecycle.progress import OnProgress, RebuildProgress
    from projections.lifecycle.rebuild import RebuildReport
    from projections.spark.reading.kafka_source import KafkaLog, OpenKafkaLog
    from projections.spark.reading.store_source import OpenStoreLog, StoreLog
    from projections.stores.comparison import DifferingRow
    from projections.stores.sql import TableStore


def opened_views(views_url: str) -> AbstractContextManager[TableStore]:
    """Open the table store of a URL; TableStoreUnavailable for a SQLite file that is not there."""
    if (path := on_demand.sqlite_path(views_url)) is not None:
        require_file(path)
    return closing(on_demand.open_table_store(views_url))


def require_file(path: str) -> None:
    """Raise TableStoreUnavailable for a SQLite file that is missing, since its views are made of its own events."""
    if not Path(path).exists():
        raise TableStoreUnavailable(
            "there is no such file",
            remedy="check the URL, or create the event store: factfold store migrate",
            place=path,
        )


def require_serving(views_url: str, group: str) -> None:
    """Raise NoServingGeneration before Spark starts, if no generation of a group serves."""
    with opened_views(views_url) as store:
        store.prepare()  # the tables of a database that has no views yet
        store.serving_state(group)


def require_same_definition(views_url: str, group: ProjectionGroup) -> None:
    """Raise NoServingGeneration, or DefinitionChanged if the code's definition differs from the serving one."""
    with opened_views(views_url) as store:
        store.prepare()
        state = store.serving_state(group.name)
    on_demand.require_unchanged(group, state, state.built.get("columns", {}))


def open_log(views_url: str, settings: eventstore.Settings | None = None) -> OpenKafkaLog | OpenStoreLog:
    """Open the log that the views of a URL are made from: their own SQLite file, or Kafka."""
    return log_of(views_url, settings).open()


def log_of(views_url: str, settings: eventstore.Settings | None = None) -> KafkaLog | StoreLog:
    """Return the log that the views of a URL are made from."""
    if embedded := on_demand.sqlite_path(views_url):
        # It loads Spark, and the event store's log of the same name is the one that is loaded on demand.
        from projections.spark.reading.store_source import StoreLog

        return StoreLog(embedded)
    return on_demand.KafkaLog(settings or eventstore.Settings())


def add_lag(log: OpenKafkaLog | OpenStoreLog, rows: Iterable[dict[str, Any]]) -> None:
    """Give each row of a generation its ``lag``, by topic: the offsets that the log has, and it has not.

    And ``lag_seconds``: the age of the oldest record that comes next, None if no record says it.
    """
    for row in rows:
        topics = [topic for topic in row["progress"] if topic != on_demand.ERASURES]
        ends = log.end_offsets(topics) if topics else {}
        seconds = on_demand.waited_seconds(log, row["progress"], ends, now=datetime.now(UTC))
        row["lag"] = on_demand.waiting_offsets(row["progress"], ends)
        row["lag_seconds"] = None if seconds is None else round(seconds, 3)


Compared = TypeVar("Compared", "ViewComparison", "ViewVerdict")


def without_personal(
    comparisons: Mapping[str, Compared], environment: Environment, group: ProjectionGroup
) -> dict[str, Compared]:
    """Return comparisons of views with the personal columns of their differing rows masked, whether they differ or not.

    Terminals and logs are no place for the values.
    """
    return {
        name: _masked(one, personal_of(environment, group, name, one.differing)) for name, one in comparisons.items()
    }


def personal_of(
    environment: Environment, group: ProjectionGroup, view: str, differing: Iterable[DifferingRow] = ()
) -> set[str]:
    """Return the columns of a view that are personal by the present definition or by that of any generation."""
    columns = {column for row in differing for side in (row.one, row.other) for column in side or ()}
    found = {*on_demand.personal_columns(environment.spark, group).get(view, ())}
    for state in environment.store.states(group.name):
        found.update(on_demand.personal_of(state, "views", view, columns))
    return found


def _masked(comparison: Compared, personal: Collection[str]) -> Compared:
    return dataclasses.replace(comparison, differing=tuple(masked_row(row, personal) for row in comparison.differing))


def masked_row(row: DifferingRow, personal: Collection[str]) -> DifferingRow:
    """Return a differing row with personal columns masked, whether they differ or not."""
    one, other = row.one or {}, row.other or {}
    hidden = {*personal} - {*row.key}
    shown = {name: MASK if one.get(name) == other.get(name) else f"{MASK} (differs)" for name in hidden}
    sides = [
        values and {name: shown.get(name, value) for name, value in values.items()} for values in (row.one, row.other)
    ]
    return dataclasses.replace(row, one=sides[0], other=sides[1])


def as_plain(comparisons: Mapping[str, Compared]) -> dict[str, Any]:
    """Comparisons or verdicts as JSON has them, with the times of rows as topics of views have them."""
    return {name: _with_times(dataclasses.asdict(one)) | {"equal": one.equal} for name, one in comparisons.items()}


def _with_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_times(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_times(inner) for inner in value]
    return str(value) if isinstance(value, datetime) else value


def comparison_lines(comparisons: Mapping[str, ViewComparison]) -> Iterator[str]:
    """Yield a comparison in lines, with the key and both rows of what differs."""
    for name, one in comparisons.items():
        outcome = "equal" if one.equal else "DIFFERS"
        yield f"{name}: {one.serving_rows:,} rows serving, {one.new_rows:,} new: {outcome}"
        for row in one.differing:
            yield from row_lines(row, "serving", "new")


def row_lines(row: DifferingRow, one: str, other: str) -> Iterator[str]:
    """Yield the key and both rows."""
    yield f"  at {_pairs(row.key)}"
    for name, values in ((one, row.one), (other, row.other)):
        yield f"    {name}: {'no row' if values is None else _pairs(values)}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


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
        from factfold.watching.metrics import VerifyMetrics  # needs the extra metrics

        VerifyMetrics().write(str(metrics_file), definition.name, verdicts, seconds=time.perf_counter() - began)
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
