"""windows.*: counts by minute, sessions, an interval join, an as-of join and a pattern, bounded and live.

2,000 persons, their visits and clicks of one day, in two topics as a connector writes them.

- `windows.<kind>`: records a second of a rebuild, from the beginning of the topics until the view is stored in
  PostgreSQL and indexed, against Quix Streams on the same topics. Quix is measured from its first record to its last
  result, at least once, in one process. Best of the runs, alternating.
- `windows.live.<kind>`: seconds of a live batch of ten thousand changes, best of the batches after a first one. The
  target is seconds. Half of the changes are late rows, half give a row another time. Each batch changes rows of almost
  every person, so most rows are near a change.

Quix has no patterns: the rate of a pattern and its ratio to our own counts by minute are figures without a target.
Quix writes each intermediate count to a topic, builds no table that can be queried, and drops rows that come later than
its grace. Its interval join finds all pairs only while it reads both topics in step: `kinds` in the results compares
its results with our rows.

What the benchmark does not show: Flink SQL, which is not run. Quix in several processes, records that are not in the
order of time in the bounded part, partitions that outgrow memory, a few changes of a few persons, more cores, a broker
and a database on machines of their own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import typer

from benchmarks.machine import Claim, at_least, at_most, write
from benchmarks.peer import QuixStreams
from benchmarks.visit_log import CLICKS, GROUPS, VISITS, VisitLog
from eventstore import Settings
from factfold.stack import LocalStack, spark_jars
from projections import Environment, open_runner, rebuild
from sample_app.road import database_url
from sample_app.story import Story

BOUNDED, LIVE = 3.0, 2.0
_ALL = 10_000_000  # more than any batch has


@dataclass
class Measured:
    """One kind: records a second and results of each side, seconds of the live batches, and the seconds by step."""

    kind: str
    records: int = 0
    ours: list[float] = field(default_factory=list)
    quix: list[float] = field(default_factory=list)
    rows: int = 0
    results: int = 0
    live: list[float] = field(default_factory=list)
    rebuilds: list[Mapping[str, float]] = field(default_factory=list)
    batches: list[Mapping[str, float]] = field(default_factory=list)

    @property
    def topics(self) -> list[str]:
        """What the view reads."""
        return [VISITS, CLICKS] if self.kind in ("interval", "asof") else [VISITS]


def main(
    rows: Annotated[int, typer.Option(help="Visits, and as many clicks.")] = 200_000,
    changes: Annotated[int, typer.Option(help="Changes of a live batch.")] = 10_000,
    runs: Annotated[int, typer.Option(help="Alternating runs, and live batches. The best counts.")] = 3,
) -> None:
    """Measure and write build/bench/windows.json."""
    story, quix = Story("windows.*"), QuixStreams()
    measured = [Measured(kind) for kind in GROUPS]
    with LocalStack("bench", ephemeral=True) as servers:
        settings = Settings.for_broker(servers.info.bootstrap_servers)
        views_url = database_url(servers.info, "bench")
        log = VisitLog(settings)
        with story.step("records"):
            log.fill(rows)
        with Environment.open(settings, views_url=views_url, jars=spark_jars(), memory="3g") as environment:
            for _ in range(runs):
                for kind in measured:
                    _measure_bounded(story, environment, log, quix, kind)
                    _write(story, measured, changes=changes)  # now: a run takes minutes
            for kind in measured:
                _measure_live(story, environment, log, kind, changes=changes, batches=runs)
                _write(story, measured, changes=changes)


def _measure_bounded(story: Story, environment: Environment, log: VisitLog, quix: QuixStreams, into: Measured) -> None:
    with story.step(f"{into.kind}: rebuild"):
        report = rebuild(environment, GROUPS[into.kind])
    into.ours.append(report.records_per_second)
    into.records = log.records(into.topics)
    into.rows = sum(report.rows[view.name] for view in GROUPS[into.kind].views)
    into.rebuilds.append(_rounded(report.seconds))
    if into.kind != "pattern":
        with story.step(f"{into.kind}: Quix"):
            rate, into.results = quix.windows(log, into.kind, records=into.records)
        into.quix.append(rate)
    story.say(f"{into.kind}: {into.ours[-1]:,.0f} records/s, Quix {into.quix[-1:]}: {into.rebuilds[-1]}")


def _measure_live(
    story: Story, environment: Environment, log: VisitLog, into: Measured, *, changes: int, batches: int
) -> None:
    """Catch up with the changes of the kinds before, then apply batches; the first one makes the plans."""
    with story.step(f"{into.kind}: live"), open_runner(environment, GROUPS[into.kind]) as runner:
        while runner.run_once(max_records=_ALL) is not None:
            pass
        for _ in range(batches + 1):
            log.change(into.topics, changes)
            begun = time.perf_counter()
            report = runner.run_once(max_records=_ALL)
            into.live.append(time.perf_counter() - begun)
            if report is None or report.records < changes:
                raise RuntimeError(f"the batch had not all of the {changes} changes: {report}")
            into.batches.append(_rounded(report.seconds))
    del into.live[0], into.batches[0]
    story.say(f"{into.kind}: {changes:,} changes in {min(into.live):.3f} s: {into.batches[-1]}")


def _write(story: Story, measured: list[Measured], *, changes: int) -> None:
    claims = [
        *(_bounded_claim(kind) for kind in measured if kind.quix),
        *(_live_claim(kind, changes) for kind in measured if kind.live),
    ]
    best = {kind.kind: max(kind.ours) for kind in measured if kind.ours}
    pattern = {"by_tumbling": best["pattern"] / best["tumbling"]} if "pattern" in best else {}
    path = write("windows", claims, pattern=pattern, kinds=[vars(kind) for kind in measured])
    story.say(f"{', '.join(f'{c.id} {c.ratio}' for c in claims)}, pattern {pattern}: see {path}")


def _bounded_claim(kind: Measured) -> Claim:
    return at_least(
        f"windows.{kind.kind}", ours=max(kind.ours), other=max(kind.quix), other_name=QuixStreams.windows_name,
        unit="records/s", n=kind.records, runs=len(kind.quix), target=BOUNDED,
    )  # fmt: skip


def _live_claim(kind: Measured, changes: int) -> Claim:
    return at_most(
        f"windows.live.{kind.kind}", ours=min(kind.live), other=1.0, other_name="one second", unit="s", n=changes,
        runs=len(kind.live), target=LIVE,
    )  # fmt: skip


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {step: round(took, 2) for step, took in seconds.items()}


if __name__ == "__main__":
    typer.run(main)
