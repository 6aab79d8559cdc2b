"""Readers of a view that only grows, and a writer that lets it: what a reader may never see is told by `Sightings`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from projections import Environment, ProjectionGroup, RebuildProgress, Table, view
from projections.follower import follow
from tests.integration.log_writer import LogWriter
from tests.integration.tickets import DECLARED, Ticket
from tests.waiting import wait_until


def growing_group(
    writer: LogWriter, *, version: int = 1, columns: tuple[str, ...] = ("ticket_id", "status")
) -> ProjectionGroup:
    """One view with a row a ticket; of another version it has other columns."""
    tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED, topic=writer.events_topic)

    @view(key="ticket_id", tables={"tickets": tickets})
    def ticket_rows(tickets):
        return tickets.select(*columns)

    return ProjectionGroup(f"growing_{writer.events_topic.rpartition('.')[2]}", [ticket_rows], version=version)


def opened(writer: LogWriter, first: int, count: int) -> list[Any]:
    """The records of so many new tickets."""
    event = Ticket.Opened(customer_id=1, hours=Decimal(1))
    return [writer.event(f"t{number}", event) for number in range(first, first + count)]


class Killed(BaseException):
    """What stands for SIGKILL inside this process."""


def killed_at(step: str) -> Callable[[RebuildProgress], None]:
    """An observer that does not live through the beginning of a step."""

    def observe(progress: RebuildProgress) -> None:
        if progress.step == step:
            raise Killed(step)

    return observe


class Sightings:
    """The numbers of rows one reader has seen, one after the other; fewer than before is a way back in time."""

    def __init__(self) -> None:
        self.highest = 0
        self.looks = 0
        self.backwards: list[tuple[int, int]] = []

    def see(self, rows: int) -> None:
        self.looks += 1
        if rows < self.highest:
            self.backwards.append((self.highest, rows))
        self.highest = max(self.highest, rows)


def rows_of(env: Environment) -> int:
    """The rows of the stable view, as any reader of it counts them."""
    with env.store.looking() as connection:
        return int(connection.scalar(sa.text("SELECT count(*) FROM ticket_rows")))


class Life:
    """What goes on around a rebuild: tickets are opened, a runner follows the group, readers look."""

    def __init__(
        self, env: Environment, group: ProjectionGroup, writer: LogWriter, *, begun: int, readers: int = 2
    ) -> None:
        self._env, self._group, self._writer = env, group, writer
        self._stop = threading.Event()
        self.sent, self.batches = begun, 0
        self.readers = [Sightings() for _ in range(readers)]
        self.failures: list[BaseException] = []
        work = [self._write, self._run, *(self._reader(sightings) for sightings in self.readers)]
        self._threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in work]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            self.failures.append(failure)

    def _write(self) -> None:
        while not self._stop.wait(0.05):
            self._writer.send(opened(self._writer, self.sent, 5))
            self.sent += 5

    def _run(self) -> None:
        follow(self._env, self._group, lambda runner: runner.run(stop=self._stop, on_batch=self._applied))

    def _applied(self, report: object) -> None:
        self.batches += 1

    def _reader(self, sightings: Sightings) -> Callable[[], None]:
        def read() -> None:
            while not self._stop.wait(0.005):
                sightings.see(rows_of(self._env))

        return read

    def wait_for_batches(self, count: int = 2) -> None:
        """Wait until the runner has applied so many more."""
        goal = self.batches + count
        wait_until(lambda: self.batches >= goal, alive=self._require_alive, what=f"{count} batches")

    def _require_alive(self) -> None:
        assert not self.failures, self.failures

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Everything goes on during the block, and has come to its end after it."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(60)
        self._require_alive()
