"""The rows near the changed ones, for a view that looks at rows near in time and not at whole partitions.

Times around those of the changed rows, before and after the batch, are ranges. The function then gets the rows in them
twice, as they were and as they will be: what differs is what the batch changes. A row at the end of a range, which
misses some that it looks at, misses them both times.

States alone are looked into: where a range ends at a row that the batch changes, this row has a range of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from projections.declaring.columns import ColumnType
from projections.declaring.timing.nearness import Nearness
from projections.stores import dialects
from projections.stores.dialects import Dialect, InOrder
from projections.stores.layout import HIGH, LOW, SIDE, RoleLayout, ViewLayout

Rows = sa.Select[tuple[object, ...]]
_AT, _PREVIOUS, _NUMBER = "_at", "_previous", "_number"


def not_deleted(rows: sa.Table) -> list[sa.ColumnElement[bool]]:
    """Rows that are there: a view has no other ones."""
    return [sa.not_(rows.c["_deleted"])] if "_deleted" in rows.c else []


def before(role: RoleLayout, columns: Sequence[sa.ColumnElement[Any]]) -> Rows:
    """Columns of the changed rows as they were; those that were not there, or deleted, came to nothing."""
    rows = sa.select(*columns).join(role.staged, role.row_key.same(role.state, role.staged))
    return rows.where(*not_deleted(role.state))


def after(role: RoleLayout, columns: Sequence[sa.ColumnElement[Any]]) -> Rows:
    """Columns of the changed rows as they are now."""
    return sa.select(*columns).where(*not_deleted(role.staged))


def fill_ranges(connection: sa.Connection, view: ViewLayout, near: Nearness) -> None:
    """Fill ``affected_*`` with the ranges of each table, apart from each other."""
    looking = _Looking(view, near, dialects.dialect_of(connection))
    for name, role in view.roles.items():
        columns = [*role.reached_by.columns, LOW, HIGH]
        connection.execute(sa.insert(role.affected).from_select(columns, looking.ranges(name)))


def cut_near(connection: sa.Connection, view: ViewLayout, near: Nearness) -> dict[str, int]:
    """Fill ``slice_*`` with the rows in the ranges, each with its side; returns the number of rows, by table."""
    return {name: _cut(connection, role, role.state.c[near.times[name]]) for name, role in view.roles.items()}


def _cut(connection: sa.Connection, role: RoleLayout, time: sa.ColumnElement[Any]) -> int:
    columns, affected = list(role.table.sliced), role.affected
    insert, parts = sa.insert(role.slice), []
    for near in (
        time.between(affected.c[LOW], affected.c[HIGH]),
        sa.and_(time.is_(None), affected.c[LOW].is_(None)),
    ):
        found = InOrder(affected, role.state, sa.and_(role.reached_by.same(role.state, affected), near))
        rows = sa.select(*(role.state.c[c] for c in columns), sa.literal(0)).select_from(found)
        parts.append(rows.where(*not_deleted(role.state)))
    with dialects.looking_up(connection):
        known = dialects.counted(connection, insert.from_select([*columns, SIDE], sa.union_all(*parts)))
    staged_too = sa.exists().where(role.row_key.same(role.staged, role.slice))
    connection.execute(sa.update(role.slice).where(staged_too).values({SIDE: -1}))
    new = after(role, [*(role.staged.c[c] for c in columns), sa.literal(1)])
    return known + dialects.counted(connection, insert.from_select([*columns, SIDE], new))


class _Looking:
    def __init__(self, view: ViewLayout, near: Nearness, dialect: Dialect) -> None:
        self._view, self._near, self._dialect = view, near, dialect
        self._by = list(view.root.reached_by.columns)
        self._kind: ColumnType = view.root.table.columns[near.times[view.definition.root]]

    def ranges(self, name: str) -> Rows:
        """The ranges of a table."""
        near, every = self._near, list(self._view.roles)
        if near.chained:
            return self._merged([self._chain(name, up=False), self._chain(name, up=True)])
        if near.bounds is None:
            return self._merged([self._around(one) for one in every])
        # Which rows of the other table look at a changed bound, and which bounds all of them look at.
        looking = {one: self._around(one) for one in every}
        looking[near.bounds] = self._outward(looking[near.bounds], down=near.after, up=near.before)
        if name != near.bounds:
            return self._merged([looking[near.bounds], looking[name]])
        return self._merged([self._outward(one, down=near.before, up=near.after) for one in looking.values()])

    def _times(self, name: str) -> sa.Subquery:
        """The partitions and times of changed rows, each once."""
        role, time = self._view.roles[name], self._near.times[name]
        parts = [
            rows(role, [*self._named(role, table), table.c[time].label(_AT)])
            for rows, table in ((before, role.state), (after, role.staged))
        ]
        return sa.union(*parts).subquery()

    def _named(self, role: RoleLayout, rows: sa.FromClause) -> list[sa.ColumnElement[Any]]:
        return [column.label(by) for by, column in zip(self._by, role.reached_by.of(rows), strict=True)]

    def _moved(self, at: sa.ColumnElement[Any], micros: int) -> sa.ColumnElement[Any]:
        return self._dialect.moved(at, self._kind, micros)

    def _around(self, name: str) -> Rows:
        """As far as the view looks, in both directions; nulls around no time."""
        times = self._times(name)
        at, micros = times.c[_AT], self._near.micros
        ends = (at, at) if micros == 0 else (self._moved(at, -micros), self._moved(at, micros))
        return self._ranges(times, at.is_not(None), *ends)

    def _ranges(self, rows: sa.FromClause, is_timed: sa.ColumnElement[bool], *ends: sa.ColumnElement[Any]) -> Rows:
        low, high = (sa.case((is_timed, end)) for end in ends)
        return sa.select(*(rows.c[c] for c in self._by), low.label(LOW), high.label(HIGH))

    def _outward(self, ranges: Rows, *, down: bool, up: bool) -> Rows:
        """From the last bounding row before each range, or to the first one after it, or both."""
        known, name = ranges.subquery(), str(self._near.bounds)
        bounds = self._view.roles[name]
        time = bounds.state.c[self._near.times[name]]
        low, high = known.c[LOW], known.c[HIGH]
        first = self._found(bounds, known, sa.func.max(time), time < low)
        last = self._found(bounds, known, sa.func.min(time), time > high)
        ends = [
            sa.func.coalesce(found, self._dialect.end(self._kind, latest=found is last)) if goes else end
            for found, goes, end in ((first, down, low), (last, up, high))
        ]
        return self._ranges(known, low.is_not(None), *ends)

    def _found(
        self, role: RoleLayout, times: sa.FromClause, end: sa.ColumnElement[Any], *where: sa.ColumnElement[bool]
    ) -> sa.ScalarSelect[Any]:
        """The least or greatest time of the state's rows in the partition."""
        by = self._view.root.reached_by
        same = role.reached_by.same(role.state, times, by)
        return sa.select(end).where(same, *where, *not_deleted(role.state)).correlate(times).scalar_subquery()

    def _chain(self, name: str, *, up: bool) -> Rows:
        """Ranges that reach on from each time as long as a row is near enough: one range a step."""
        role, times, micros = self._view.roles[name], self._times(name), self._near.micros
        time = role.state.c[self._near.times[name]]
        at = times.c[_AT]
        start = sa.select(*(times.c[c] for c in self._by), at.label(LOW), at.label(HIGH))
        chain = start.cte(f"chain_{'up' if up else 'down'}", recursive=True)
        ends: list[sa.ColumnElement[Any]]
        if up:
            near = time > chain.c[HIGH], time <= self._moved(chain.c[HIGH], micros)
            ends = [chain.c[HIGH], self._found(role, chain, sa.func.max(time), *near)]
        else:
            near = time < chain.c[LOW], time >= self._moved(chain.c[LOW], -micros)
            ends = [self._found(role, chain, sa.func.min(time), *near), chain.c[LOW]]
        goes_on = [chain.c[end].is_not(None) for end in (LOW, HIGH)]
        chain = chain.union(sa.select(*(chain.c[c] for c in self._by), *ends).where(*goes_on))
        return sa.select(*chain.c).where(chain.c[LOW].is_(None) == chain.c[HIGH].is_(None))

    def _merged(self, parts: Sequence[Rows]) -> Rows:
        """The same times in ranges of which none touches another."""
        ranges = sa.union(*parts).subquery()
        known = sa.select(*ranges.c, self._so_far(ranges, sa.func.max(ranges.c[HIGH]), -1).label(_PREVIOUS)).subquery()
        opens = sa.case((known.c[_PREVIOUS] >= known.c[LOW], 0), else_=1)
        numbered = sa.select(*known.c, self._so_far(known, sa.func.sum(opens), 0).label(_NUMBER)).subquery()
        by, low, high = [numbered.c[c] for c in self._by], numbered.c[LOW], numbered.c[HIGH]
        return sa.select(*by, sa.func.min(low), sa.func.max(high)).group_by(*by, numbered.c[_NUMBER])

    def _so_far(self, rows: sa.FromClause, found: sa.FunctionElement[Any], until: int) -> sa.Over[Any]:
        """Something of the ranges of a partition up to each, in their order."""
        by, order = [rows.c[c] for c in self._by], [rows.c[LOW], rows.c[HIGH]]
        return found.over(partition_by=by, order_by=order, rows=(None, until))
