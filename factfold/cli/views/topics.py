"""`factfold branches`: run, status.

`factfold archive`: run, once, status, verify, optimize, release-topic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import eventstore
import projections
from eventstore import Restarts
from eventstore.errors import BrokerUnreachable
from factfold import on_demand
from factfold.cli.definitions import load_definition
from factfold.cli.options import Commands, Memory, Yes, argument, confirm, definition, option, parse_duration, setting
from factfold.cli.running import Running, Served, reached_settings, stop_on_signal
from factfold.cli.show import Out, answer
from factfold.stack import delta_jars, spark_jars

if TYPE_CHECKING:
    from projections import Archiver
    from projections.branching.router import Router
    from projections.logs.layers import Extent
    from projections.spark.archive.archiver import Appended
    from projections.spark.archive.verifying import ArchiveVerdict

branches = Commands("Branches: put each record of a topic into exactly one topic.")

Definition = Annotated[str, definition("The branches, as module:name.", "branches", metavar="MODULE:NAME")]
Checkpoints = Annotated[Path, setting("--checkpoints", "Folder of the routers' Spark checkpoints.")]


Mode = Literal["real-time", "micro-batch"]
Start = Literal["beginning", "end"]


@branches.command("run")
def route(
    named: Definition,
    checkpoints: Checkpoints,
    running: Running,
    out: Out,
    mode: Annotated[Mode, option("--mode", "micro-batch needs fewer slots.")] = "real-time",
    start: Annotated[Start, option("--start", "Where the very first start begins.")] = "beginning",
    batch_seconds: Annotated[
        int | None, option("--batch-seconds", "How long a batch of real-time mode lasts.", min=5)
    ] = None,
    master: Annotated[str | None, setting("--spark-master", "Default: enough local slots.")] = None,
    memory: Memory = "1g",
) -> None:
    """Route the topic's records until a signal comes. Killed, it goes on from its Spark checkpoint."""
    branches, stop = load_branches(named), stop_on_signal()
    settings = reached_settings(without_kafka="factfold up evaluates branches in the event store")
    options = projections.RouterOptions(mode=mode, start=start, restarts=Restarts(limit=running.restarts))
    if batch_seconds is not None:
        options = dataclasses.replace(options, batch_seconds=batch_seconds)

    def look(metrics: projections.RouterMetrics) -> None:
        metrics.standing(projections.branches_status(eventstore.Settings(), branches, checkpoints=checkpoints))

    with ExitStack() as opened:
        metrics = opened.enter_context(running.metrics(lambda: projections.RouterMetrics(branches.topic), look))

        def opening() -> Router:
            return opened.enter_context(projections.open_router(
                settings, branches, checkpoints=checkpoints, options=options, jars=spark_jars(), master=master,
                memory=memory, metrics=metrics,
            ))  # fmt: skip

        router = on_demand.router_outwaiting(branches, options.restarts, metrics).once(opening, stop=stop)
        if router is None:
            return
        stop_on_signal(stop)
        out.state("routing", f"routing {branches.topic}")
        router.run(stop=stop)
        counts = _counted(router)
        more = {"restarts": router.restarts, "reloads": router.reloads, "mode": router.mode}
        out.show({"counts": counts, **more}, _count_lines(counts))


@branches.command("status")
def status_of_branches(named: Definition, checkpoints: Checkpoints, out: Out) -> None:
    """Show how far the router has come and how many records each branch holds."""
    branches = load_branches(named)
    settings = reached_settings(without_kafka="there is no router: subscriptions evaluate branches themselves")
    status = projections.branches_status(settings, branches, checkpoints=checkpoints)
    behind = "no batch has ended yet" if status.lag is None else f"{status.lag:,} offsets behind"
    fields = {"counts": status.counts, "topic": status.topic, "lag": status.lag}
    out.show(fields, [f"{status.topic}: {behind}", *_count_lines(status.counts)])


def load_branches(spec: str) -> on_demand.Branches:
    """The branches that `module:name` names; DeclarationError says which half is wrong."""
    return load_definition(
        spec, on_demand.Branches, what="definition of branches", example="shop.payments:payment_branches"
    )


def _counted(router: Router) -> Mapping[str, int] | None:
    """What the branches hold; None while the broker is away, for which a stop does not wait."""
    try:
        return router.counts()
    except BrokerUnreachable:
        return None


def _count_lines(counts: Mapping[str, int] | None) -> Iterator[str]:
    if counts is None:
        yield "the broker is away, and counts no records of the branches"
    else:
        yield from (f"{name}: {count:,} records" for name, count in counts.items())


archive = Commands("Topics in columns next to Kafka, from which views are rebuilt.")

Topics = Annotated[list[str], argument("The topics.", "TOPIC")]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the archive is, and the memory to read it with."""

    archive: Annotated[str, setting("--archive", "The archive's folder, or a URI that Hadoop understands.")]
    memory: Memory = "1g"

    def opened(self, **options: Any) -> AbstractContextManager[Archiver]:
        """Open an archiver over it; BrokerUnreachable."""
        jars = [*spark_jars(), *delta_jars()]
        settings = reached_settings(without_kafka="there is nothing to archive")
        return projections.open_archiver(settings, self.archive, jars=jars, memory=self.memory, **options)


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


@archive.command("run")
def run_archiver(
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


@archive.command()
def once(topics: Topics, place: Place, appending: Appending, out: Out) -> None:
    """Archive what the topics hold now, and stop."""
    with appending.opened(place) as archiver:
        count = archiver.catch_up(topics, on_append=lambda done: _tell(done, out))
    if not count:
        out.show({"offsets": 0}, "nothing new")


@archive.command("status")
def status_of_archive(place: Place, out: Out) -> None:
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


@archive.command()
def verify(topics: Topics, place: Place, out: Out) -> None:
    """Compare the archive with what the topics still hold, record by record. Exit code 3 if one is missing."""
    with place.opened() as archiver:
        verdicts = [projections.verify_archive(archiver.log, archiver.archive, topic) for topic in topics]
    out.show([_as_json(verdict) for verdict in verdicts], map(_verdict_line, verdicts))
    answer(all(verdict.equal for verdict in verdicts))


@archive.command()
def optimize(topics: Topics, place: Place, out: Out) -> None:
    """Join small files, and delete files that were not used for seven days."""
    with place.opened() as archiver:
        for topic in topics:
            table = archiver.archive.table(topic)
            done = dict(table.compact())
            table.clean()
            said = f"{topic}: {done['files_removed']:,} files became {done['files_added']:,}"
            out.show({"topic": topic, **done}, said)


@archive.command("release-topic")
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
