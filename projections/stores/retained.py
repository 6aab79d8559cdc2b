"""Rows of long ago that are forgotten: some at a time between batches, and retracted nowhere.

The floor of a generation is stored with its rows, and only rises. It is what counts: rows from before are read by no
batch, compared by no verification, and no event of theirs is applied, whether they are deleted already or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.declaring.tables import EVENT_TIME
from projections.errors import CodeFailed, ProjectionError
from projections.faults import FORGOTTEN, TOO_LATE
from projections.stores.arrow import as_stored, moment_of
from projections.stores.layout import GenerationLayout, RetainedLayout, TableLayout, ViewLayout

Condition = sa.ColumnElement[bool]

_PLACE: Final = {"postgresql": "ctid", "sqlite": "_rowid_"}


@dataclass(frozen=True)
class Frozen:
    """The rows of a view that do not change any more: those with a time ``before`` in a column."""

    column: str
    before: sa.ColumnElement[Any]

    def among(self, rows: sa.Table) -> Condition:
        """Which of the rows they are."""
        return rows.c[self.column] < self.before


def floor(connection: sa.Connection, layout: GenerationLayout) -> int | None:
    """The time in microseconds before which nothing comes any more; None where nothing was forgotten yet."""
    if layout.retained is None:
        return None
    upto: int | None = connection.scalar(sa.select(sa.func.max(layout.retained.passed.c.upto)))
    return upto


def raise_floor(connection: sa.Connection, retained: RetainedLayout, *, upto: int) -> None:
    """Let the floor be at a time, unless it is beyond."""
    passed = retained.passed
    rows = [{"table_name": name, "upto": upto, "forgotten": 0} for name in retained.rows]
    statement = upsert(connection, passed)
    higher = {"upto": statement.excluded.upto}
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["table_name"], set_=higher, where=statement.excluded.upto > passed.c.upto
        ),
        rows,
    )


def forget(connection: sa.Connection, layout: GenerationLayout, *, most: int) -> dict[str, int]:
    """Delete at most so many rows of each table that nothing reads any more; returns how many, by table."""
    retained, upto = layout.retained, floor(connection, layout)
    if retained is None or upto is None:
        return {}
    counts = {}
    for name, (rows, times) in retained.rows.items():
        if count := _delete(connection, rows, before(connection, rows, times, upto), most):
            counts[name] = count
            passed = retained.passed
            more = sa.update(passed).where(passed.c.table_name == name)
            connection.execute(more.values(forgotten=passed.c.forgotten + count))
    return counts


def _delete(connection: sa.Connection, rows: sa.Table, condition: Condition, most: int) -> int:
    """By the places of rows: a key may be null, and one of many columns."""
    place: sa.ColumnElement[Any] = sa.literal_column(_PLACE[connection.dialect.name])
    first = sa.select(place).select_from(rows).where(condition).limit(most)
    if connection.dialect.name == "postgresql":
        # As an array it is looked up, and the table is not read.
        chosen = place == sa.func.any(sa.func.array(first.scalar_subquery()))
    else:
        chosen = place.in_(first)
    return int(connection.execute(sa.delete(rows).where(chosen)).rowcount)


def before(connection: sa.Connection, rows: sa.Table, times: Mapping[str, int], upto: int) -> Condition:
    """Whether rows are so far before the floor that nothing reads them; the deleted ones of a stream stay marked."""
    parts = [rows.c[column] < _moment(connection, column, upto - behind) for column, behind in times.items()]
    there = [sa.not_(rows.c["_deleted"])] if "_deleted" in rows.c else []
    return sa.and_(*parts, *there)


def _moment(connection: sa.Connection, column: str, micros: int) -> sa.ColumnElement[Any]:
    return sa.literal(micros, sa.BigInteger) if column == EVENT_TIME else as_stored(connection, micros)


def forgets(layout: GenerationLayout, view: str) -> bool:
    """Whether rows of a view are forgotten."""
    return layout.retained is not None and f"view_{view}" in layout.retained.rows


def leave_out_of_copies(connection: sa.Connection, layout: GenerationLayout, view: ViewLayout) -> None:
    """Drop the rows of a view that may be forgotten by now from its copies, both by the same floor."""
    upto = floor(connection, layout)
    if layout.retained is None or upto is None or not forgets(layout, view.name):
        return
    _, times = layout.retained.rows[f"view_{view.name}"]
    for copy in (view.live_copy, view.recomputed_copy):
        connection.execute(sa.delete(copy).where(before(connection, copy, times, upto)))


def leave_out(connection: sa.Connection, layout: GenerationLayout, tables: TableLayout) -> bool:
    """Drop the staged rows that came too late, or from before the floor; returns whether any records did.

    ProjectionError: a deletion cannot take back what a forgotten row has become.
    """
    if "_late" not in tables.staged.c:
        return False
    upto, staged = floor(connection, layout), tables.staged
    if upto is not None:
        _require_none_deleted(connection, tables)
    old = sa.false() if upto is None else sa.and_(staged.c[EVENT_TIME] < upto, sa.not_(staged.c["_deleted"]))
    some = sa.select(sa.literal(1)).select_from(staged).where(sa.or_(staged.c["_late"] > 0, old)).limit(1)
    if connection.execute(some).one_or_none() is None:
        return False
    connection.execute(sa.delete(staged).where(sa.or_(staged.c["_late"] == 2, old)))
    return True


def _require_none_deleted(connection: sa.Connection, tables: TableLayout) -> None:
    staged, state = tables.staged, tables.state
    same = sa.and_(*(staged.c[k] == state.c[k] for k in tables.row_key))
    known = sa.exists().where(same, state.c["_deleted"])
    deletions = sa.select(*(staged.c[k] for k in tables.key)).where(staged.c["_deleted"], sa.not_(known)).limit(1)
    if row := connection.execute(deletions).one_or_none():
        raise rows_forgotten(tables.table.topic, key=row[0])


def rows_forgotten(topic: str, *, key: object) -> ProjectionError:
    """An event was deleted, and its row may be one that is forgotten."""
    return ProjectionError(
        "a stream of events was deleted, and rows of it may be forgotten: their results cannot be taken back",
        remedy="rebuild the projection. Leave out retain= for events that are deleted often",
        place=f"topic {topic}, key {key}",
        code="rows-forgotten",
    )


def frozen_before(connection: sa.Connection, layout: GenerationLayout, view: ViewLayout) -> Frozen | None:
    """Before which time rows of a view with a reach do not change any more; None for no such view."""
    upto, retained = floor(connection, layout), layout.retained
    if retained is None or upto is None or view.name not in retained.frozen:
        return None
    column, behind = retained.frozen[view.name]
    return Frozen(column, as_stored(connection, upto - behind))


def require_times(connection: sa.Connection, view: ViewLayout, rows: sa.Table) -> None:
    """Refuse a row without a time in a view whose rows are distinguished by it; CodeFailed."""
    reach = view.definition.reach
    if reach is None:
        return
    missing = [rows.c[reach.on].is_(None)] + ([sa.not_(rows.c["_deleted"])] if "_deleted" in rows.c else [])
    if connection.execute(sa.select(sa.literal(1)).select_from(rows).where(*missing).limit(1)).one_or_none():
        raise CodeFailed(
            f"view {view.name!r} returned a row without {reach.on!r}, and its reach counts from there",
            remedy=f"return a time of every row, coalesce(…) AS {reach.on}",
            place=view.definition.place,
        )


def standing(connection: sa.Connection, passed: sa.Table, aside: sa.Table) -> dict[str, Any]:
    """Up to which time rows are forgotten, how many by table, and how many events were set aside for it, by kind."""
    if not sa.inspect(connection).has_table(passed.name, schema=passed.schema):
        return {}
    rows = list(connection.execute(sa.select(passed)))
    upto = max((row.upto for row in rows), default=None)
    kinds = sa.select(aside.c.kind, sa.func.count()).where(aside.c.kind.in_((TOO_LATE, FORGOTTEN)))
    return {
        "upto": None if upto is None else moment_of(upto).isoformat(),
        "forgotten": {row.table_name: row.forgotten for row in rows},
        "set_aside": {kind: count for kind, count in connection.execute(kinds.group_by(aside.c.kind))},
    }
