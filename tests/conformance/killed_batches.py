"""Histories cut into batches, some of which are killed and repeated: written, carried in, and checked after each.

What tests of generated histories share, whatever their changes are and whatever says what is right.
"""

from __future__ import annotations

import itertools
import os
import random
from contextlib import closing, contextmanager
from functools import partial

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from projections import Environment, open_runner, rebuild, verify
from projections.spark.session import small_batch_session
from projections.stores import affected, differences
from projections.stores.postgres import PostgresTableStore
from projections.stores.sqlite import SqliteTableStore
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.generated_views import Batch, Change
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.view_oracle import assert_views_are_right

EXAMPLES = int(os.environ.get("FACTFOLD_EXAMPLES", "0"))
_KILLED_AT = [None, None, None, "staged", "kept", "committing", "committed"]
_NUMBERS = itertools.count()
_PARTITIONS = affected._partitions

# Planted faults of views over partitions: module, name, what stands in its place.
LEFT_PARTITIONS = (affected, "_partitions", lambda role, by, destroyed: _PARTITIONS(role, by, destroyed)[1:])
ROWS_STAY = (differences, "_retract", lambda *given: 0)
OF_PARTITIONS = {"partitions that rows were in are forgotten": LEFT_PARTITIONS, "rows that are gone stay": ROWS_STAY}


def some(examples):
    """So many examples, the same each time in `make test`; make faults looks at others. Shrinking takes minutes."""
    return settings(
        max_examples=EXAMPLES or examples, derandomize=not EXAMPLES, deadline=None,
        phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def few(examples):
    """A tenth of the settings' examples: in PostgreSQL each takes longer."""
    return settings(examples, max_examples=max(2, EXAMPLES // 10))


def until_a_fault_shows(lived, drawn, examples, *, start=3):
    """Let a function live through what is drawn, by a seed that soon comes to a fault: it ends with the first wrong."""

    @seed(start)
    @given(drawn)
    @settings(examples, max_examples=200, derandomize=False, database=None)
    def each(found):
        lived(found)

    each()


class Killed(Exception):
    """What ends an attempt."""


def killing(step):
    """Raise at the step."""

    def at(reached):
        if reached == step:
            raise Killed

    return at


def drawn_batches(draw, change, *, changes=6, batches=8):
    """Up to so many batches of up to so many changes, each of which ``change`` draws."""

    def batch():
        killed = draw(st.sampled_from(_KILLED_AT))
        return Batch([change() for _ in range(draw(st.integers(1, changes)))], killed)

    return [batch() for _ in range(draw(st.integers(3, batches)))]


def drawn_change(draw, tables, values):
    """A row of one of the tables put or deleted, perhaps late, perhaps twice."""
    number = draw(st.integers(0, len(tables) - 1))
    row = None if draw(st.integers(0, 4)) == 0 else {c: draw(values) for c in tables[number].payload}
    return Change(number, {"id": draw(st.integers(0, 5))}, row, draw(st.integers(0, 2)), draw(st.integers(1, 2)))


def write(changes, tables, batch):
    """A change has a position of its own in its source, however late and often it comes."""
    for change in batch.changes:
        table, now = tables[change.table], changes.position + 1_000
        for _ in range(change.times):
            changes.position = now
            at = now - 1_000 * change.late - bool(change.late) * (now // 1_000 % 1_000)
            if change.values is None:
                changes.delete(table, change.key, at=at)
            else:
                changes.put(table, {**change.key, **change.values}, at=at)


def carry_in(batches, history, written, check):
    """Write each batch and carry it in, the killed ones again; ``check`` what is right then."""
    for number, batch in enumerate(history):
        written(batch)
        try:
            batches.catch_up(killing(batch.killed_at))
        except Killed:
            batches.catch_up()
        check(after=f"batch {number} of {history}")


def live_as_duckdb_says(store, history, columns, *, group, sql, named, tables):
    """Carry a history in, and compare what readers see after each batch with what DuckDB makes of all rows."""
    log = MemoryLog()
    changes, batches = ChangeWriter(log), RelationalBatches(store, log, group, sql, columns)
    check = partial(assert_views_are_right, store, log, group, sql, named)
    carry_in(batches, history, partial(write, changes, tables), check)


def random_batches(start, tables, *, batches):
    """A few of what Hypothesis would draw, for Spark, whose batches take longer."""
    chance = random.Random(start)
    for _ in range(batches):
        changes = []
        for _ in range(8):
            number = chance.randrange(len(tables))
            columns = list(tables[number].payload)
            values = None if chance.random() < 0.2 else {c: chance.choice([None, 0, 1, 2, 3]) for c in columns}
            changes.append(Change(number, {"id": chance.randrange(6)}, values, chance.randrange(3), 1))
        yield Batch(changes, None)


def assert_spark_keeps_as_rebuilt(spark, folder, group, batches, tables, check):
    """Let a runner apply each batch, and another store rebuild them all: ``check`` what is right in both."""
    with in_a_file(folder) as store:
        environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        rebuild(environment, group)
        changes = ChangeWriter(environment.log)
        with open_runner(environment, group) as runner:
            for number, batch in enumerate(batches):
                write(changes, tables, batch)
                runner.catch_up()
                check(store, environment.log, after=f"batch {number}")
        verdicts = verify(environment, group)
        assert {name for name, verdict in verdicts.items() if not verdict.equal} == set()
    with in_a_file(folder) as store:
        rebuild(Environment(spark, small_batch_session(spark), store, environment.log), group)
        check(store, environment.log, after="the rebuild")


@contextmanager
def in_a_file(folder):
    """An empty table store in a file of its own."""
    with closing(SqliteTableStore(folder / f"{next(_NUMBERS)}.db")) as store:
        store.prepare()
        yield store


@contextmanager
def in_postgresql(url):
    """An empty table store in a database."""
    with closing(PostgresTableStore(url)) as store:
        store.prepare()
        yield store
