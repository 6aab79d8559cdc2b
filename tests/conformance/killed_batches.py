"""Histories cut into batches, some of which are killed and repeated: written, carried in, and checked after each.

What tests of generated histories share, whatever their changes are and whatever says what is right.
"""

from __future__ import annotations

import itertools
import os
from contextlib import closing, contextmanager

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from projections.tablestore import affected, differences
from projections.tablestore.postgres import PostgresTableStore
from projections.tablestore.sqlite import SqliteTableStore
from tests.conformance.generated_views import Batch, Change

EXAMPLES = int(os.environ.get("FACTFOLD_EXAMPLES", "0"))
_KILLED_AT = [None, None, None, "staged", "kept", "committing", "committed"]
_NUMBERS = itertools.count()
_PARTITIONS = affected._partitions

# Planted faults of views over partitions: module, name, what stands in its place.
LEFT_PARTITIONS = (affected, "_partitions", lambda role, by, destroyed: _PARTITIONS(role, by, destroyed)[1:])
ROWS_STAY = (differences, "_retract", lambda *given: 0)


def some(examples):
    """So many examples, the same each time in `make test`; make faults looks at others. Shrinking takes minutes."""
    return settings(
        max_examples=EXAMPLES or examples, derandomize=not EXAMPLES, deadline=None,
        phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip


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
