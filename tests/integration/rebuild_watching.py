"""Readers of a view that only grows, and a writer that lets it: what a reader may never see is told by `Sightings`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from eventstore.kafka.producer import OutgoingRecord
from eventstore.topics import partition_of
from projections import Environment, ProjectionGroup, Table, view
from projections.lifecycle.follower import follow
from projections.lifecycle.progress import RebuildProgress
from tests.integration.log_writer import PARTITIONS, LogWriter
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


class Counted:
    """New tickets that tell where they are: ``customer_id`` is the partition and the place among its tickets."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._places = dict.fromkeys(range(PARTITIONS), 0)
        self.sent = 0

    def send(self, count: int) -> None:
        """Open so many more."""
        self._writer.send([self._next() for _ in range(count)])

    def _next(self) -> OutgoingRecord:
        identity = f"t{self.sent}"
        partition = partition_of(f"{Ticket.category}-{identity}", PARTITIONS)
        place, self._places[partition] = self._places[partition], self._places[partition] + 1
        self.sent += 1
        opened = Ticket.Opened(customer_id=place * PARTITIONS + partition, hours=Decimal(1))
        return self._writer.event(identity, opened)


class Killed(BaseException):
    """What stands for SIGKILL inside this process."""


def killed_at(step: str) -> Callable[[RebuildProgress], None]:
    """An observer that does not live through the beginning of a step."""

    def observe(progress: RebuildProgress) -> None:
        if progress.step == step:
            raise Killed(step)

    return observe


class Sightings:
    """What one reader has seen of a view of counted tickets, one look after the other.

    A look is ``partial`` where a partition shows another number of tickets than its last one has, ``backwards`` where
    one shows fewer than before, and ``empty`` where nothing is shown.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.empty = 0
        self.partial: list[tuple[int, int, int]] = []
        self.backwards: list[tuple[int, int, int]] = []
        self._seen: dict[int, int] = {}

    @property
    def wrong(self) -> tuple[int, int, int]:
        """How many looks, or partitions in one, were empty, partial, backwards."""
        return self.empty, len(self.partial), len(self.backwards)

    def see(self, found: Mapping[int, tuple[int, int]]) -> None:
        """Take one more look: by partition, how many rows there are, and how many there are by the last of them."""
        self.looks += 1
        self.empty += not found
        for partition in {*found, *self._seen}:
            rows, by_the_last = found.get(partition, (0, 0))
            known = self._seen.get(partition, 0)
            if rows != by_the_last:
                self.partial.append((partition, rows, by_the_last))
            if by_the_last < known:
                self.backwards.append((partition, known, by_the_last))
            self._seen[partition] = max(known, by_the_last)


def rows_of(env: Environment) -> int:
    """The rows of the stable view, as any reader of it counts them."""
    with env.store.looking() as connection:
        return int(connection.scalar(sa.text("SELECT count(*) FROM ticket_rows")))


_SEEN = sa.text(
    f"SELECT customer_id % {PARTITIONS}, count(*), max(customer_id / {PARTITIONS}) + 1 FROM ticket_rows GROUP BY 1"
)


def seen_by(env: Environment) -> dict[int, tuple[int, int]]:
    """One look at a view of counted tickets, as ``Sightings`` takes it."""
    with env.store.looking() as connection:
        return {partition: (rows, last) for partition, rows, last in connection.execute(_SEEN)}


EACH_SECOND = 100  # tickets
# A look counts every row: ten readers that hardly rest leave no processor to what they look at once it has grown.
_REST_SECONDS, _RESTS = 0.02, 9


class Life:
    """What goes on around a rebuild: a hundred tickets a second, a runner that follows the group, readers that look."""

    def __init__(self, env: Environment, group: ProjectionGroup, tickets: Counted, *, readers: int = 2) -> None:
        self._env, self._group, self._tickets = env, group, tickets
        self._stop = threading.Event()
        self.batches = 0
        self.readers = [Sightings() for _ in range(readers)]
        self.failures: list[BaseException] = []
        work = [self._write, self._run, *(self._reader(sightings) for sightings in self.readers)]
        self._threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in work]

    @property
    def looks(self) -> int:
        """Of all readers."""
        return sum(reader.looks for reader in self.readers)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            self.failures.append(failure)

    def _write(self) -> None:
        begun, first = time.monotonic(), self._tickets.sent
        while not self._stop.wait(0.05):
            due = int(EACH_SECOND * (time.monotonic() - begun)) - (self._tickets.sent - first)
            self._tickets.send(due)

    def _run(self) -> None:
        follow(self._env, self._group, lambda runner: runner.run(stop=self._stop, on_batch=self._applied))

    def _applied(self, report: object) -> None:
        self.batches += 1

    def _reader(self, sightings: Sightings) -> Callable[[], None]:
        def read() -> None:
            rest = _REST_SECONDS
            while not self._stop.wait(rest):
                begun = time.monotonic()
                sightings.see(seen_by(self._env))
                rest = max(_REST_SECONDS, _RESTS * (time.monotonic() - begun))

        return read

    def wait_for_batches(self, count: int = 2) -> None:
        """Wait until the runner has applied so many more."""
        goal = self.batches + count
        wait_until(lambda: self.batches >= goal, alive=self._require_alive, what=f"{count} batches")

    def wait_for_looks(self, count: int) -> None:
        """Wait until all readers together have looked so often."""
        wait_until(lambda: self.looks >= count, alive=self._require_alive, what=f"{count} looks")

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
