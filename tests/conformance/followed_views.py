"""Views that follow their tables, through any history that is cut into batches. Some batches are killed and repeated.

A test gives worlds as data: views, the tables that they follow, changes to draw, and an oracle for the rows. The
harness writes each batch, carries it into the views with Spark or without it, and compares their rows with the oracle.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, verify
from projections.spark.live import incremental
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores.opening import open_table_store
from projections.stores.staging import commit_batch
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance import view_oracle
from tests.conformance.relational_batches import RelationalBatches

EXAMPLES = int(os.environ.get("FACTFOLD_EXAMPLES", "0"))
KILLED_AT = (None, None, None, "staged", "kept", "committing", "committed")
_NUMBERS = itertools.count()
_APPLY = incremental.LiveBatches.apply


@dataclass(frozen=True)
class Change:
    """A row put or deleted, how many changes too late it comes, and how often."""

    table: int
    key: dict[str, int | str]
    values: dict[str, int | str | None] | None
    late: int
    times: int


@dataclass(frozen=True)
class Batch:
    """Some changes, and the step at which the runner is killed on its first attempt."""

    changes: list[Any]
    killed_at: str | None


@dataclass(frozen=True, repr=False)
class World:
    """A group of views, its tables by the numbers of changes, the query of each view, and an oracle.

    ``shown`` reads the rows of a store, by default those of the stable views. ``written`` gives the function that
    appends a batch to a log, by default as a connector writes it.
    """

    group: ProjectionGroup
    tables: tuple[Table, ...]
    computed: Mapping[str, str | Callable[..., Any]]
    expected: Callable[[MemoryLog], Mapping[str, Any]]
    shown: Callable[..., Mapping[str, Any]] | None = None
    written: Callable[[MemoryLog], Callable[[Batch], object]] | None = None
    batches: type[RelationalBatches] = RelationalBatches
    _columns: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{[(table.topic, table.key, list(table.payload)) for table in self.tables]}; {self.computed}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis would print every field of every table."""
        printer.text(repr(self))

    def columns(self, spark: Any) -> dict[str, Any]:
        """The columns of the views, which Spark is asked for once."""
        if not self._columns:
            self._columns.update(view_columns(small_batch_session(spark), self.group))
        return self._columns

    def writing(self, log: MemoryLog) -> Callable[[Batch], object]:
        return self.written(log) if self.written else partial(write, ChangeWriter(log), self.tables)

    def rows(self, store: Any, columns: Any) -> Mapping[str, Any]:
        if self.shown is None:
            return view_oracle.stored(store, self.group)
        return self.shown(store, store.serving(self.group, columns)[1])

    def check(self, store: Any, log: MemoryLog, columns: Any, *, after: str) -> None:
        right, found = self.expected(log), self.rows(store, columns)
        wrong = {name: (rows, right[name]) for name, rows in found.items() if rows != right[name]}
        assert not wrong, f"after {after}: {wrong}"


def by_duckdb(group, sql, named, *, tables=None):
    """A world whose views DuckDB answers by their SQL."""
    expected = partial(view_oracle.expected, group=group, sql=sql, tables=named)
    return World(group, tables or tuple(named.values()), sql, expected)


Lives = st.SearchStrategy[tuple[World, list[Batch]]]


@dataclass(frozen=True)
class Followed:
    """Worlds with a history each, how many of them to look at, and those for Spark and PostgreSQL."""

    lives: Lives
    examples: int
    by_spark: Lives | None = None
    in_postgresql: Lives | None = None


def followed(world, histories, examples, by_spark=None):
    """One world, and batches for Spark."""
    batches = None if by_spark is None else st.just((world, by_spark))
    return Followed(st.tuples(st.just(world), histories), examples, batches)


def some(examples):
    """So many examples, the same each time in `make test`; make faults looks at others. Shrinking takes minutes."""
    return settings(
        max_examples=EXAMPLES or examples, derandomize=not EXAMPLES, deadline=None,
        phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def look_at(lives, live, chosen):
    """Let a function live through some lives."""

    @given(lives)
    @chosen
    def each(life):
        live(*life)

    each()


def few(part):
    """Two examples, in make faults a part of all: in PostgreSQL and by Spark each takes longer."""
    return settings(some(2), max_examples=max(2, EXAMPLES // part))


class Killed(Exception):
    """The end of an attempt."""


def killing(step):
    """Raise at the step."""

    def at(reached):
        if reached == step:
            raise Killed

    return at


def drawn_batches(draw, change, *, changes=6, batches=8):
    """Up to so many batches of up to so many changes, each of which ``change`` draws."""

    def batch():
        killed = draw(st.sampled_from(KILLED_AT))
        return Batch([change() for _ in range(draw(st.integers(1, changes)))], killed)

    return [batch() for _ in range(draw(st.integers(3, batches)))]


@st.composite
def histories_of(draw, tables, value, *, ids=5, key=None, **bounds):
    """Rows that come, change, go, come late, and come twice, ``value`` and ``key`` by column; some are killed."""

    def change():
        number = draw(st.integers(0, len(tables) - 1))
        row = None if draw(st.integers(0, 4)) == 0 else {c: draw(value(c)) for c in tables[number].payload}
        keys = {c: draw(key(c) if key else st.integers(0, ids)) for c in tables[number].key}
        return Change(number, keys, row, draw(st.integers(0, 2)), draw(st.integers(1, 2)))

    return drawn_batches(draw, change, **bounds)


def random_batches(start, tables, values, *, batches, ids=5, changes=8):
    """A few of what Hypothesis would draw, for Spark, whose batches take longer; ``values`` by column."""
    chance = random.Random(start)

    def change():
        number = chance.randrange(len(tables))
        row = None if chance.random() < 0.2 else {c: chance.choice(values(c)) for c in tables[number].payload}
        return Change(number, {"id": chance.randrange(ids + 1)}, row, chance.randrange(3), 1)

    return [Batch([change() for _ in range(changes)], None) for _ in range(batches)]


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


def live(store, columns, world, history):
    """Write each batch and carry it in without Spark, the killed ones again, and check; returns the rows at the end."""
    log = MemoryLog()
    batches, written = world.batches(store, log, world.group, world.computed, columns), world.writing(log)
    for number, batch in enumerate(history):
        written(batch)
        try:
            batches.catch_up(killing(batch.killed_at))
        except Killed:
            batches.catch_up()
        world.check(store, log, columns, after=f"batch {number} of {history}")
    return world.rows(store, columns)


def live_in_a_file(spark, folder, world, history):
    with in_a_file(folder) as store:
        return live(store, world.columns(spark), world, history)


def live_in_postgresql(spark, url, world, history):
    with opened(url) as store:
        live(store, world.columns(spark), world, history)


@contextmanager
def killed_runner(step):
    """A batch of Spark that ends before its transaction, in it or behind it; the steps before have no transaction."""

    def commit(*given, **named):
        if step in ("staged", "kept"):
            raise Killed
        commit_batch(*given, **named)
        if step == "committing":
            raise Killed

    def apply(*given, **named):
        report = _APPLY(*given, **named)
        if step == "committed":
            raise Killed
        return report

    with patch.object(incremental, "commit_batch", commit), patch.object(incremental.LiveBatches, "apply", apply):
        yield


def live_by_spark(spark, folder, world, history):
    """Let runners apply each batch, the one behind a killed one what it left, and another store rebuild them all."""
    columns = world.columns(spark)
    with in_a_file(folder) as store:
        environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        rebuild(environment, world.group)
        written, left = world.writing(environment.log), list(enumerate(history))
        while left:
            with suppress(Killed), open_runner(environment, world.group) as runner:
                while left:
                    number, batch = left.pop(0)
                    written(batch)
                    with killed_runner(batch.killed_at):
                        runner.catch_up()
                    world.check(store, environment.log, columns, after=f"batch {number} of {history}")
        with open_runner(environment, world.group) as runner:
            runner.catch_up()
        world.check(store, environment.log, columns, after=f"the last batch of {history}")
        verdicts = verify(environment, world.group)
        assert {name for name, verdict in verdicts.items() if not verdict.equal} == set()
    with in_a_file(folder) as store:
        rebuild(Environment(spark, small_batch_session(spark), store, environment.log), world.group)
        world.check(store, environment.log, columns, after="the rebuild")


def in_a_file(folder):
    """An empty table store in a file of its own."""
    return opened(f"sqlite:///{folder / f'{next(_NUMBERS)}.db'}")


@contextmanager
def opened(url) -> Iterator[Any]:
    """An empty table store in a database."""
    with closing(open_table_store(url)) as store:
        store.prepare()
        yield store
