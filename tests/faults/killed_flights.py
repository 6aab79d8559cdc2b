"""Flights on their way, a runner of their view that is killed again and again, and what the view must be then."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from eventstore.kafka.admin import end_offsets
from factfold.stack import LocalStack
from projections import Environment, ProjectionGroup, open_runner, verify
from projections.logs.offsets import reached
from projections.spark.views.view_functions import view_columns
from projections.stores.arrow import arrow_schema
from projections.stores.comparison import digest_rows
from sample_app.flights.corrections import Corrections
from sample_app.flights.demo import write_tables
from sample_app.flights.flight import Flight
from sample_app.flights.model import Base
from sample_app.flights.oracle import as_arrow, expected_details
from sample_app.flights.source import appends, read_flights
from sample_app.road import Road, lay_road
from tests.faults.command_process import CommandProcess
from tests.waiting import wait_until

RESUMED_WITHIN = 30.0  # seconds from the start of the next process to its first batch, on a machine of its own


@contextmanager
def road_of_its_own(name: str) -> Iterator[Road]:
    """On servers of its own: those of the session may hold the flights of another test."""
    with LocalStack(name, ephemeral=True) as servers:
        with closing(lay_road(servers.info, "flights", aggregates=[Flight], tables=Base.metadata)) as road:
            write_tables(road)
            yield road


class Traffic:
    """Appends the flights, of which there are ``count``, in parts, corrections after each."""

    def __init__(self, road: Road, count: int, *, seed: int) -> None:
        self._road = road
        self._flights = read_flights(count)
        self._sent = 0
        self.corrections = Corrections(road, list(self._flights["flight_id"][:1_000]), seed=seed)

    def send(self, count: int) -> None:
        part = self._flights.iloc[self._sent : self._sent + count]
        for batch in appends(part, size=100):
            self._road.store.append_batch(batch)
        self._sent += count
        self.corrections.round(moves=5)

    def expected(self) -> pd.DataFrame:
        sent = self._flights.iloc[: self._sent]
        return expected_details(sent, self.corrections.reassigned, self._road.engine)


def assert_view_is(environment: Environment, group: ProjectionGroup, expected: pd.DataFrame) -> None:
    """The digest of the view, of a recomputation and of what is expected are one."""
    verdict = verify(environment, group)["flight_details"]
    columns = view_columns(environment.spark, group)["flight_details"]
    assert (verdict.digest, verdict.rows) == digest_rows(as_arrow(expected, arrow_schema(columns)))
    assert verdict.equal


def is_caught_up(environment: Environment, group: ProjectionGroup) -> bool:
    """Whether the run has come to the ends of the topics."""
    run, _ = environment.store.serving(group, view_columns(environment.spark, group))
    return reached(environment.store.progress(run), end_offsets(environment.log.settings, list(group.topics)))


def caught_up(environment: Environment, group: ProjectionGroup, road: Road) -> None:
    """Carry over, in this process, everything that is committed."""
    road.wait_until_captured()
    with open_runner(environment, group) as runner:
        runner.catch_up()


@dataclass
class KilledRuns:
    """A group's runner as a process that is killed and started again; ``in_flight`` are the kills amid a batch.

    ``module`` is what runs: `factfold`, or one that changes something about it first.
    ``resumed`` has the seconds from each start after such a kill to the first batch that was applied then.
    """

    environment: Environment
    group: ProjectionGroup
    named: str
    settings: Mapping[str, str]
    log: Path
    module: str = "factfold"
    in_flight: int = 0
    resumed: list[float] = field(default_factory=list)
    _left_behind: bool = False

    def start(self) -> CommandProcess:
        """Start it, and wait until it follows, with the views built if there were none, and goes on."""
        begun = time.monotonic()
        process = CommandProcess(
            ["projections", "run", self.named, "--json"], self.settings, self.log, module=self.module
        )
        process.wait_for_lines(1)
        if self._left_behind:
            process.wait_for_lines(1)
            self.resumed.append(time.monotonic() - begun)
        return process

    def kill(self, process: CommandProcess) -> None:
        """End it by SIGKILL."""
        process.kill()
        self._left_behind = not is_caught_up(self.environment, self.group)
        self.in_flight += self._left_behind

    def kill_amid_batches(
        self, count: int, happen: Callable[[], Callable[[], object]], moment: random.Random, *, within: float
    ) -> None:
        """Let something happen, wait until the batch it makes has begun, and kill in so many seconds, so often.

        ``happen`` gives the condition that tells it.
        """
        for _ in range(count):
            process = self.start()
            wait_until(happen(), what="a batch", pause=0.01)
            time.sleep(moment.uniform(0, within))  # the moment of the kill, and no wait for anything
            self.kill(process)
        assert 2 * self.in_flight >= count, "few kills fell into a batch: send more, or kill sooner"

    def require_resumed(self) -> None:
        """Half of the starts, at least, came to their first batch within the target."""
        assert statistics.median(self.resumed) <= RESUMED_WITHIN, self.told()

    def told(self) -> str:
        """What to print of it. To start a JVM on a busy machine takes a minute."""
        seconds = ", ".join(f"{seconds:.1f}" for seconds in self.resumed) or "none"
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        return f"kills amid a batch: {self.in_flight}; seconds from start to first batch: {seconds} ({load})"
