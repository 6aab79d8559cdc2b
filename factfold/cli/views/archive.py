"""`factfold archive`: run, once, status, verify, optimize, release-topic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import eventstore
import projections
from factfold.cli.options import Commands, Memory, Yes, argument, confirm, option, parse_duration, setting
from factfold.cli.running import Served, reached_settings, stop_on_signal
from factfold.cli.show import Out, answer
from factfold.stack import delta_jars, spark_jars

if TYPE_CHECKING:
    from projections import Archiver
    from projections.logs.layers import Extent
    from projections.spark.archive.appended import Appended
    from projections.spark.archive.verifying import ArchiveVerdict

app = Commands("Topics in columns next to Kafka, from which views are rebuilt.")

Topics = Annotated[list[str], argument("The topics.", "TOPIC")]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the archive is, and the memory to read it with."""

    archive: Annotated[str, setting("--archive", "The archive's folder, or a URI that Hadoop understands.")]
    memory: Memory = "1g"

    @contextmanager
    def opened(self, **options: Any) -> Iterator[Archiver]:
        """Open an archiver over it; BrokerUnreachable."""
        jars = [*spark_jars(), *delta_jars()]
        settings = reached_settings(without_kafka="there is nothing to archive")
        with projections.open_archiver(settings, self.archive, jars=jars, memory=self.memory, **options) as archiver:
            yield archiver


@dataclasses.dataclass(frozen=True)
class Appending:
    """How records are appended."""

    max_offsets: Annotated[
        int | None, option("--max-offsets", "Offsets of one append. A killed archiver repeats at most so many.", min=1)
    ] = None
    incomplete: Annotated[
        bool, option("--incomplete", "Archive what is left of a topic whose first records are deleted.")
    ] = False

    @contextmanager
    def opened(self, place: Place) -> Iterator[Archiver]:
        """Open an archiver that appends."""
        with place.opened(incomplete=self.incomplete) as archiver:
            most = self.max_offsets
            yield archiver if most is None else dataclasses.replace(archiver, max_offsets=most)


@app.command()
def run(
    topics: Topics,
    place: Place,
    appending: Appending,
    served: Served,
    out: Out,
    every: Annotated[float, option("--every", "Seconds between two looks at the topics.", min=1)] = 10.0,
) -> None:
    """Archive what the topics get until a signal comes. Killed at any moment, it goes on exactly where it was."""
    stop = stop_on_signal()
    name = place.archive.rstrip("/").rpartition("/")[2]
    with (
        served.metrics(lambda: projections.ArchiveMetrics(name)) as metrics,
        appending.opened(place) as archiver,
    ):
        stop_on_signal(stop)
        out.state("archiving")
        archiver.run(topics, stop=stop, every=every, on_append=lambda done: _tell(done, out), metrics=metrics)


@app.command()
def once(topics: Topics, place: Place, appending: Appending, out: Out) -> None:
    """Archive what the topics hold now, and stop."""
    with appending.opened(place) as archiver:
        count = archiver.catch_up(topics, on_append=lambda done: _tell(done, out))
    if not count:
        out.show({"offsets": 0}, "nothing new")


@app.command()
def status(place: Place, out: Out) -> None:
    """Show what is archived of each topic, and how many offsets of it wait."""
    with place.opened() as archiver:
        extents = archiver.archive.extents(archiver.archive.topics())
        topics = [_described(archiver, topic, extent) for topic, extent in extents.items()]
    out.show(topics, map(_topic_line, topics))


def _topic_line(one: dict[str, Any]) -> str:
    since = "" if one["whole"] else ", not from the first record"
    return (
        f"{one['topic']}: {one['offsets']:,} offsets{since}, {one['waiting']:,} wait; "
        f"{one['files']:,} files, {one['bytes'] / 1e6:,.1f} MB"
    )


@app.command()
def verify(topics: Topics, place: Place, out: Out) -> None:
    """Compare the archive with what the topics still hold, record by record. Exit code 3 if one is missing."""
    with place.opened() as archiver:
        verdicts = [projections.verify_archive(archiver.log, archiver.archive, topic) for topic in topics]
    out.show([_as_json(verdict) for verdict in verdicts], map(_verdict_line, verdicts))
    answer(all(verdict.equal for verdict in verdicts))


@app.command()
def optimize(topics: Topics, place: Place, out: Out) -> None:
    """Join small files, and delete files that were not used for seven days."""
    with place.opened() as archiver:
        for topic in topics:
            table = archiver.archive.table(topic)
            done = dict(table.compact())
            table.clean()
            said = f"{topic}: {done['files_removed']:,} files became {done['files_added']:,}"
            out.show({"topic": topic, **done}, said)


@app.command("release-topic")
def release(
    topic: Annotated[str, argument("The topic.")],
    place: Place,
    retention: Annotated[str, option("--retention", "How long the topic retains a record from now on: 36h, 30d.")],
    out: Out,
    wait: Annotated[
        str, option("--wait", "How long an archiver may take to come to the topic's end: 30s, 5m.")
    ] = "30s",
    yes: Yes = False,
) -> None:
    """Let a topic delete old records, after checking that its archive holds all its records."""
    retention_period, patience = parse_duration(retention), parse_duration(wait)
    confirm(f"Let {topic!r} delete its records after {retention}", yes=yes)
    with place.opened() as archiver:
        verdict, given = projections.release_topic(
            eventstore.Settings(), archiver.log, archiver.archive, topic, retention=retention_period, patience=patience
        )
    now = ", ".join(f"{name}={value}" for name, value in given.items())
    out.show({**_as_json(verdict), "settings": given}, f"{_verdict_line(verdict)}. Now {now}")


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


def _tell(done: Appended, out: Out) -> None:
    out.show(done, f"{done.topic}: {done.offsets:,} offsets, {done.seconds:.1f} s")
