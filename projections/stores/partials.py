"""The rows by which a batch changes groups whose partial aggregates are kept, and groups that need all their rows."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from projections.declaring.partials import AFTER, BEFORE, GROUPS, WHOLE
from projections.stores import dialects
from projections.stores.affected import not_deleted
from projections.stores.layout import PartialLayout, RoleLayout, ViewLayout


def cut_changes(connection: sa.Connection, view: ViewLayout, partials: PartialLayout) -> dict[str, int]:
    """Fill the tables of what is added up: changed rows before and after the batch, and what is kept of their groups.

    Returns the number of rows of each.
    """
    columns = list(partials.columns[GROUPS])
    queries = {BEFORE: _before(view.root), AFTER: _after(view.root), GROUPS: _stored_groups(view, columns)}
    return {name: _fill(connection, partials.tables[name], query) for name, query in queries.items()}


def _fill(connection: sa.Connection, table: sa.Table, rows: sa.Select[tuple[object, ...]]) -> int:
    return dialects.counted(connection, sa.insert(table).from_select([c.name for c in table.columns], rows))


def _before(role: RoleLayout) -> sa.Select[tuple[object, ...]]:
    """The changed rows as they were; those that were not there, or deleted, came to nothing."""
    rows = sa.select(*(role.state.c[c] for c in role.table.sliced))
    return rows.join(role.staged, role.row_key.same(role.state, role.staged)).where(*not_deleted(role.state))


def _after(role: RoleLayout) -> sa.Select[tuple[object, ...]]:
    return sa.select(*(role.staged.c[c] for c in role.table.sliced)).where(*not_deleted(role.staged))


def _stored_groups(view: ViewLayout, columns: Sequence[str]) -> sa.Select[tuple[object, ...]]:
    affected = view.root.affected
    rows = sa.select(*(view.view.c[c] for c in columns))
    return rows.join(affected, view.root_key.same(view.view, affected, view.root.reached_by))


def has_marked(connection: sa.Connection, view: ViewLayout) -> bool:
    """Whether any group is to be computed whole."""
    return bool(connection.scalar(sa.select(sa.exists().where(marked(view)))))


def drop_marked(connection: sa.Connection, view: ViewLayout) -> None:
    """Drop from the result the groups that are to be computed whole, once their rows are in the slice."""
    connection.execute(sa.delete(view.result).where(marked(view)))


def marked(view: ViewLayout) -> sa.ColumnElement[bool]:
    """Whether a row of the result stands for a group whose changes do not tell what becomes of it."""
    return view.result.c[WHOLE].is_(sa.true())
