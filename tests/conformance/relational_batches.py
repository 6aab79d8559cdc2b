"""Live batches without Spark: changes reduced in Python, view functions run as SQL by DuckDB over the slices.

What is left is what a table store does: complete what is staged, find what it affects, cut slices, take the difference,
commit. So hundreds of batches cost seconds, on every database.
"""

from __future__ import annotations

import functools
import json
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from projections.declaring.columns import LONG, hidden
from projections.declaring.tables import set_at
from projections.planning.planner import plan
from projections.spark.exchange import fetched
from projections.stores import staging
from projections.stores.layout import SIDE
from projections.stores.staging import commit_batch
from projections.stores.view_changes import cut_slices, find_affected, stage_difference
from tests.conformance import view_oracle
from tests.reference import accepted


class RelationalBatches:
    """The batches of one group of views that are written in SQL, or are functions of tables, over topics in memory."""

    def __init__(self, store, log, group, sql, columns):
        self._store, self._log, self._group, self._sql = store, log, group, sql
        # Partial aggregates are added up by Spark: here every group is computed whole.
        whole = {
            name: {c: kind for c, kind in found.items() if c not in hidden(found)} for name, found in columns.items()
        }
        self._run, self._layout = store.begin_generation(group, whole)
        store.index_generation(group, self._layout)
        store.serve(group, self._run, self._layout, log.beginning_offsets(group.topics))

    def catch_up(self, at=lambda step: None):
        """Carry everything that is new into the views, in one batch; ``at`` is called at each step, and may raise."""
        start, end = self._store.progress(self._run), self._log.end_offsets(self._group.topics)
        if start == end:
            return
        with self._store.staging(self._run) as connection:
            mark = staging.begin(connection, self._layout)
        for tables in self._layout.tables.values():
            self._stage(tables, start[tables.table.topic][0])
        at("staged")
        for view in self._layout.views.values():
            self._keep(view)
        at("kept")
        with self._store.transaction() as connection:
            commit_batch(connection, self._layout, self._run, start=start, end=end, mark=mark)
            at("committing")
        at("committed")

    def _stage(self, tables, since):
        rows = newest(tables.table, self._log.records(tables.table.topic)[since:], since)
        if rows:
            self._store.target(tables.staged).append(as_arrow(tables, rows))
        with self._store.staging(self._run) as connection:
            staging.complete(connection, tables)

    def _keep(self, view):
        walk = plan(view.definition)
        with self._store.staging(self._run) as connection:
            if not find_affected(connection, self._layout, view, walk):
                return
            cut_slices(connection, view, walk)
        if view.near is None:
            found = self._answer(view, lambda rows: rows)
        else:
            before = self._answer(view, lambda rows: rows.filter(pc.less_equal(rows[SIDE], 0)))
            after = self._answer(view, lambda rows: rows.filter(pc.greater_equal(rows[SIDE], 0)))
            found = differing(before, after, view.definition.key)
        self._store.target(view.result).append(found)
        with self._store.staging(self._run) as connection:
            stage_difference(connection, view, walk)

    def _answer(self, view, chosen):
        """The rows of a view over some rows of its slices."""
        slices = {name: self._slice(role, chosen) for name, role in view.roles.items()}
        query = self._sql[view.name]
        return query(slices) if callable(query) else self._found(view, query, slices)

    def _found(self, view, query, slices):
        """What the query makes of the slices: of a partition at a time, where the view does not return its columns."""
        by = [column for column in view.definition.by if column not in view.columns]
        if not by:
            return run(query, slices, view.columns)
        held = {name: view.definition.root_key_in(name) for name in slices}
        scopes = {
            scope for name, rows in slices.items() for scope in zip(*map(rows.__getitem__, held[name]), strict=True)
        }
        parts = []
        for scope in scopes:
            some = {name: rows.filter(_equal(rows, held[name], scope)) for name, rows in slices.items()}
            part = run(query, some, view.columns)
            for column, value in zip(by, scope, strict=True):
                kind = view.stored_columns[column].arrow()
                part = part.append_column(column, pa.array([value.as_py()] * part.num_rows, kind))
            parts.append(part)
        return pa.concat_tables(parts) if parts else run(query, slices, view.columns)

    def _slice(self, role, chosen):
        side = {SIDE: LONG} if SIDE in role.slice.c else {}
        rows = chosen(fetched(self._store.target(role.slice), {**role.table.sliced, **side})).select(role.table.sliced)
        if role.table.condition is None:
            return rows
        return pa.Table.from_pylist(list(accepted(role.table, rows.to_pylist())), rows.schema)


def differing(before, after, key):
    """The rows that are others after a batch, and those that are not there any more, marked."""
    sides = [{tuple(row[c] for c in key): row for row in rows.to_pylist()} for rows in (before, after)]
    assert list(map(len, sides)) == [before.num_rows, after.num_rows]
    changed = {k: {**row, "_deleted": False} for k, row in sides[1].items() if sides[0].get(k) != row}
    changed |= {k: {**row, "_deleted": True} for k, row in sides[0].items() if k not in sides[1]}
    return pa.Table.from_pylist(list(changed.values()), after.schema.append(pa.field("_deleted", pa.bool_())))


def _equal(rows, columns, values):
    """Which rows have these values, or nulls."""
    is_equal = [pc.fill_null(pc.equal(rows[c], v), False) if v.is_valid else rows[c].is_null()
                for c, v in zip(columns, values, strict=True)]  # fmt: skip
    return functools.reduce(pc.and_, is_equal)


def run(sql, slices, columns):
    """What DuckDB makes of the slices."""
    with view_oracle.opened() as engine:
        for name, rows in slices.items():
            engine.register(name, rows)
        found = engine.sql(sql).to_arrow_table()
    return found.cast(pa.schema([(name, columns[name].arrow()) for name in found.schema.names]))


def newest(table, records, since):
    """The rows that a reduction by key stages: the last change by position; a tombstone follows its own change."""
    found = {}
    for offset, (key, value) in enumerate(records, since):
        if value is None:
            continue
        change = json.loads(value)
        place = (change["source"]["lsn"], offset)
        if place >= found.get(key, (place,))[0]:
            found[key] = (place, {**json.loads(key), **(change["after"] or {})}, change["op"] == "d")
    return list(found.values())


def as_arrow(tables, rows):
    """Staged rows, every column of which their change has set."""
    table = tables.table
    columns = {c: [row.get(c) for _, row, _ in rows] for c in table.columns}
    arrays = {c: as_array(values, table.columns[c].arrow()) for c, values in columns.items()}
    positions = [place[0] for place, _, _ in rows]
    return pa.table(
        {
            **arrays,
            **{set_at(c): pa.array(positions, pa.int64()) for c in table.sometimes_unset},
            "_epoch": pa.array([0] * len(rows), pa.int64()),
            "_pos": pa.array(positions, pa.int64()),
            "_offset": pa.array([place[1] for place, _, _ in rows], pa.int64()),
            "_deleted": pa.array([gone for _, _, gone in rows], pa.bool_()),
        }
    )


def as_array(values, kind):
    """Values of change events in their type; times are texts there."""
    if pa.types.is_timestamp(kind):
        values = [value and datetime.fromisoformat(value) for value in values]
    return pa.array(values, kind)
