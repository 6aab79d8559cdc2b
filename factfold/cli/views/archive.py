"""`factfold archive`: run, once, status, verify, optimize, release-topic."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eventstore
import projections
from eventstore.errors import DeclarationError
from factfold.cli.brokers import reached_settings
from factfold.cli.cdc.comparisons import DIFFERS
from factfold.cli.logs import log_to_stderr
from factfold.cli.metrics import LOCAL, MetricsHost, MetricsPort, served_metrics
from factfold.cli.shown_values import echo
from factfold.cli.signals import stop_on_signal
from factfold.cli.views.projections import Json, Memory
from factfold.stack import delta_jars, spark_jars

if TYPE_CHECKING:
    from projections import Archiver, ArchiveVerdict
    from projections.logs.archive import Extent
    from projections.spark.archive.appended import Appended

app = typer.Typer(help="Topics in columns next to Kafka, from which views are rebuilt.", no_args_is_help=True)

_LONG = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Topics = Annotated[list[str], typer.Argument(help="The topics.", metavar="TOPIC")]
Archive = Annotated[
    str,
    typer.Option(
        "--archive", envvar="FACTFOLD_ARCHIVE", help="The archive's folder, or a URI that Hadoop understands."
    ),
]
Incomplete = Annotated[
    bool, typer.Option("--incomplete", help="Archive what is left of a topic whose first records are deleted.")
]
MaxOffsets = Annotated[
    int | None,
    typer.Option("--max-offsets", min=1, help="Offsets of one append. A killed archiver repeats at most so many."),
]


@app.callback()
def archives() -> None:
    """Topics in columns next to Kafka, from which views are rebuilt."""
    log_to_stderr()


@app.command()
def run(
    topics: Topics,
    archive: Archive,
    every: Annotated[float, typer.Option("--every", min=1, help="Seconds between two looks at the topics.")] = 10.0,
    max_offsets: MaxOffsets = None,
    incomplete: Incomplete = False,
    memory: Memory = "1g",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    as_json: Json = False,
) -> None:
    """Archive what the topics get until a signal comes. Killed at any moment, it goes on exactly where it was."""
    stop = stop_on_signal()
    with (
        served_metrics(partial(_metrics, archive), metrics_port, metrics_host) as metrics,
        _archiver(archive, memory, max_offsets=max_offsets, incomplete=incomplete) as archiver,
    ):
        stop_on_signal(stop)
        echo(json.dumps({"state": "archiving"}) if as_json else "archiving", err=not as_json)
        sys.stdout.flush()
        tell = partial(_tell_append, as_json=as_json)
        archiver.run(topics, stop=stop, every=every, on_append=tell, metrics=metrics)


def _metrics(archive: str) -> projections.ArchiveMetrics:
    return projections.ArchiveMetrics(archive.rstrip("/").rpartition("/")[2])


@app.command()
def once(
    topics: Topics,
    archive: Archive,
    max_offsets: MaxOffsets = None,
    incomplete: Incomplete = False,
    memory: Memory = "1g",
    as_json: Json = False,
) -> None:
    """Archive what the topics hold now, and stop."""
    with _archiver(archive, memory, max_offsets=max_offsets, incomplete=incomplete) as archiver:
        count = archiver.catch_up(topics, on_append=lambda done: _tell_append(done, as_json=as_json))
    if not count:
        echo(json.dumps({"offsets": 0}) if as_json else "nothing new")


@app.command()
def status(archive: Archive, memory: Memory = "1g", as_json: Json = False) -> None:
    """Show what is archived of each topic, and how many offsets of it wait."""
    with _archiver(archive, memory) as archiver:
        topics = [_described(archiver, topic, extent) for topic, extent in _extents(archiver).items()]
    if as_json:
        echo(json.dumps(topics))
    for one in () if as_json else topics:
        since = "" if one["whole"] else ", not from the first record"
        echo(
            f"{one['topic']}: {one['offsets']:,} offsets{since}, {one['waiting']:,} wait; "
            f"{one['files']:,} files, {one['bytes'] / 1e6:,.1f} MB"
        )


@app.command()
def verify(topics: Topics, archive: Archive, memory: Memory = "1g", as_json: Json = False) -> None:
    """Compare the archive with what the topics still hold, record by record. Exit code 3 if one is missing."""
    with _archiver(archive, memory) as archiver:
        verdicts = [projections.verify_archive(archiver.log, archiver.archive, topic) for topic in topics]
    if as_json:
        echo(json.dumps([_as_json(verdict) for verdict in verdicts]))
    for verdict in () if as_json else verdicts:
        echo(_verdict_line(verdict))
    if not all(verdict.equal for verdict in verdicts):
        raise typer.Exit(DIFFERS)


@app.command()
def optimize(topics: Topics, archive: Archive, memory: Memory = "1g", as_json: Json = False) -> None:
    """Join small files, and delete files that were not used for seven days."""
    with _archiver(archive, memory) as archiver:
        for topic in topics:
            table = archiver.archive.table(topic)
            done = dict(table.compact())
            table.clean()
            line = f"{topic}: {done['files_removed']:,} files became {done['files_added']:,}"
            echo(json.dumps({"topic": topic, **done}) if as_json else line)


@app.command("release-topic")
def release(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    archive: Archive,
    retention: Annotated[
        str, typer.Option("--retention", help="How long the topic retains a record from now on: 36h, 30d.")
    ],
    wait: Annotated[
        str, typer.Option("--wait", help="How long an archiver may take to come to the topic's end: 30s, 5m.")
    ] = "30s",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    memory: Memory = "1g",
    as_json: Json = False,
) -> None:
    """Let a topic delete old records, after checking that its archive holds all its records."""
    retention_period, patience = parse_duration(retention), parse_duration(wait)
    if not yes:
        typer.confirm(f"Let {topic!r} delete its records after {retention}", abort=True, err=True)
    with _archiver(archive, memory) as archiver:
        verdict, given = projections.release_topic(
            eventstore.Settings(), archiver.log, archiver.archive, topic, retention=retention_period, patience=patience
        )
    if as_json:
        echo(json.dumps({**_as_json(verdict), "settings": dict(given)}))
    else:
        echo(f"{_verdict_line(verdict)}. Now {', '.join(f'{name}={value}' for name, value in given.items())}")


def parse_duration(text: str) -> timedelta:
    """A time such as 90s, 45m, 36h or 30d; DeclarationError."""
    if (match := _LONG.fullmatch(text)) and int(match.group(1)):
        return timedelta(**{_UNITS[match.group(2)]: int(match.group(1))})
    raise DeclarationError(f"{text!r} is no time", remedy="say 36h or 30d: a number, then s, m, h or d")


@contextmanager
def _archiver(
    archive: str, memory: str, *, max_offsets: int | None = None, incomplete: bool = False
) -> Iterator[Archiver]:
    jars = [*spark_jars(), *delta_jars()]
    settings = reached_settings(without_kafka="there is nothing to archive")
    with projections.open_archiver(settings, archive, jars=jars, memory=memory, incomplete=incomplete) as archiver:
        yield archiver if max_offsets is None else dataclasses.replace(archiver, max_offsets=max_offsets)


def _extents(archiver: Archiver) -> Mapping[str, Extent]:
    return archiver.archive.extents(archiver.archive.topics())


def _described(archiver: Archiver, topic: str, extent: Extent) -> dict[str, Any]:
    with archiver.log.open() as opened:
        ends = opened.end_offsets([topic])[topic]
    files, size = archiver.archive.table(topic).files()
    return {
        "topic": topic,
        "offsets": extent.offsets,
        "whole": extent.whole,
        "waiting": extent.waiting(ends),
        "files": files,
        "bytes": size,
        "begin": dict(extent.begin),
        "end": dict(extent.end),
    }


def _as_json(verdict: ArchiveVerdict) -> dict[str, Any]:
    return dataclasses.asdict(verdict) | {"equal": verdict.equal}


def _verdict_line(verdict: ArchiveVerdict) -> str:
    if verdict.equal:
        return f"{verdict.topic}: {verdict.archived:,} records archived, the topic's {verdict.compared:,} are equal"
    return (
        f"{verdict.topic}: DIFFERS: {verdict.missing:,} of the topic's {verdict.compared:,} records are not archived, "
        f"{verdict.repeated:,} are there twice, {verdict.only_archived:,} only there"
    )


def _tell_append(done: Appended, *, as_json: bool) -> None:
    line = f"{done.topic}: {done.offsets:,} offsets, {done.seconds:.1f} s"
    echo(json.dumps(dataclasses.asdict(done)) if as_json else line)
    sys.stdout.flush()
