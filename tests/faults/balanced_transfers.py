"""Transfers between accounts, their two sides added up apart and joined again, and readers of what is published."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from pyspark.sql import functions as F

from eventstore import Aggregate, event
from projections import ProjectionGroup, Stream, view

ACCOUNTS = 10
DISORDER = 10.0  # seconds by which a transfer may come late; a hundred of them are made in one
BEGUN = datetime(2013, 1, 1, tzinfo=UTC)


class Transfer(Aggregate):
    """Cents that go from one account to another."""

    @event
    class Made:
        debited: int
        credited: int
        cents: int
        at: datetime


def in_disorder(count, *, seed):
    """So many transfers with their identities, as they arrive."""
    chance = random.Random(seed)
    seconds = [number / 100 for number in range(count)]
    order = sorted(range(count), key=lambda number: seconds[number] + chance.uniform(0, DISORDER))
    for number in order:
        debited, credited = chance.sample(range(ACCOUNTS), 2)
        at = BEGUN + timedelta(seconds=seconds[number])
        yield f"n{number}", Transfer.Made(debited=debited, credited=credited, cents=chance.randrange(1, 1_000), at=at)


def to_everyone():
    """A transfer from each account to the next: each has both sides."""
    for account in range(ACCOUNTS):
        yield f"first{account}", Transfer.Made(debited=account, credited=(account + 1) % ACCOUNTS, cents=1, at=BEGUN)


def balance_group(topic):
    """Three views: what went out of each account, what came in, and both joined to what is left.

    An account has a balance once it has both sides.
    """
    transfers = Stream.from_events(Transfer, events=Transfer.Made, key="transfer_id", time="at", topic=topic)

    @view(by="debited", tables={"transfers": transfers})
    def debits(transfers):
        return transfers.groupBy("debited").agg(F.sum("cents").alias("gone"))

    @view(by="credited", tables={"transfers": transfers})
    def credits(transfers):
        return transfers.groupBy("credited").agg(F.sum("cents").alias("come"))

    @view(key="debited", tables={"debits": debits, "credits": credits})
    def balances(debits, credits):
        joined = debits.join(credits, debits.debited == credits.credited)
        return joined.select("debited", "gone", (F.col("come") - F.col("gone")).alias("balance"))

    return ProjectionGroup(f"bank_{topic.rpartition('.')[2]}", [debits, credits, balances])


class Samples:
    """What one reader has seen: versions, told from each other by all that ever went out, and those out of balance."""

    # One statement: its parts are of one moment.
    _SUMS = sa.text(
        "SELECT sum(gone), sum(balance), (SELECT sum(gone) FROM debits), (SELECT sum(come) FROM credits) FROM balances"
    )

    def __init__(self, store):
        self._store = store
        self.looks, self.versions, self.unbalanced = 0, set(), set()

    def look(self):
        """Take one more."""
        with self._store.looking() as connection:
            version, *sums = (int(value or 0) for value in connection.execute(self._SUMS).one())
        self.looks += 1
        self.versions.add(version)
        if sums != [0, version, version]:
            self.unbalanced.add(version)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Look again and again, in a thread, as long as the block is at work."""
        stop, failures = threading.Event(), []

        def work():
            try:
                while not stop.wait(0.002):
                    self.look()
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)
        assert not failures, failures
