"""The stages that keep a view up to date: what each reads, by which columns, and what its last batch took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from projections.declaring.any_table import AnyTable
from projections.declaring.columns import AFTER, BEFORE, SCOPE, is_partial
from projections.declaring.group import ProjectionGroup
from projections.declaring.tables import Table
from projections.declaring.views import View, view_behind, with_noted
from projections.stores.dialects import NameSpace
from projections.stores.opening import opened
from projections.stores.sql import TableStore


@dataclass(frozen=True, slots=True)
class Read:
    """A table or a view that a stage reads: rows of ``source``, found by these columns.

    ``refers`` are the columns of other tables of the stage that hold them.
    """

    name: str
    source: str
    by: tuple[str, ...]
    refers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a view that is stored: how many ``rows`` it has, and what the last batch took.

    ``scope`` says which rows are computed together. The last batch reached so many of these, ``read`` so many rows for
    them, and ``changed`` so many rows of the stage.
    """

    name: str
    key: tuple[str, ...]
    scope: str
    reads: tuple[Read, ...]
    rows: int
    reached: int
    read: int
    changed: int


def explain(views: str | TableStore, group: ProjectionGroup, view: str | View) -> tuple[Stage, ...]:
    """Return the stages of a view, each after those that it reads. A view that is not cut is its only stage.

    Args:
        views: The views' database or its URL.
        group: The group.
        view: The view or its name.

    Raises:
        InvalidDefinition: The group has no such view.
        NoServingGeneration: The group was not built yet.
        TableStoreUnavailable: The database did not answer.

    Examples:
        >>> for stage in explain("sqlite:///shop.db", shop_views, "orders_by_region"):
        ...     print(stage.name, stage.scope, stage.rows)
    """
    name = view if isinstance(view, str) else view.name
    declared = group.view(name)
    with opened(views) as store, store.looking() as connection:
        state = store.serving_state(group.name)
        known = with_noted(declared, state.built.get("references", {}))
        space = store.space(state.run)
        others = {one.name for one in group.all_views} - {name}
        columns = state.built.get("columns", {})
        return tuple(_stage(connection, space, one, columns.get(one.name, ())) for one in _parts(known, others))


def _parts(view: View, others: set[str]) -> Iterator[View]:
    for table in view.tables.values():
        read = view_behind(table)
        if read is not None and read.name not in others:
            yield from _parts(read, others)
    yield view


def _stage(connection: sa.Connection, space: NameSpace, view: View, columns: Sequence[str]) -> Stage:
    name, changes = view.name, (BEFORE, AFTER) if any(map(is_partial, columns)) else ()
    read = [f"slice_{name}_{number}" for number in range(len(view.tables))] + [f"{side}_{name}" for side in changes]
    return Stage(
        name,
        view.key,
        _scope(view),
        tuple(_read(view, parameter) for parameter in view.tables),
        rows=_count(connection, space, [f"view_{name}"]),
        reached=_count(connection, space, [f"affected_{name}_0"]),
        read=_count(connection, space, read),
        changed=_count(connection, space, [f"result_{name}"]),
    )


def _scope(view: View) -> str:
    if not view.by:
        return f"each row of {view.root}"
    by = ", ".join(column.removeprefix(SCOPE) for column in view.by)
    return "all rows" if view.within == "all" else f"rows of one {by}"


def _read(view: View, name: str) -> Read:
    table = view.tables[name]
    by = view.root_key_in(name) if name in view.roots else table.key
    refers = tuple(f"{r.source}.{column}" for r in view.references if r.target == name for column in r.columns)
    return Read(name, _source(table), by, refers)


def _source(table: AnyTable | View) -> str:
    return f"topic {table.topic}" if isinstance(table, Table) else f"view {table.name}"


def _count(connection: sa.Connection, space: NameSpace, names: Sequence[str]) -> int:
    tables = (space.logged(name) for name in names)
    return sum(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0 for table in tables)


def drawn(stages: Sequence[Stage]) -> Iterator[str]:
    """A tree of text: each stage above those that it reads."""
    by_name = {f"view {stage.name}": stage for stage in stages}
    yield from _tree(stages[-1], by_name)


def _tree(stage: Stage, by_name: Mapping[str, Stage], before: str = "") -> Iterator[str]:
    yield f"{stage.name}: computed for {stage.scope}. {stage.rows:,} rows by {', '.join(stage.key)}"
    yield f"{before}│  last batch: {stage.reached:,} reached, {stage.read:,} rows read, {stage.changed:,} changed"
    for number, read in enumerate(stage.reads, start=1):
        last = number == len(stage.reads)
        branch, further = ("└─ ", "   ") if last else ("├─ ", "│  ")
        below = by_name.get(read.source)
        if below is None:
            yield f"{before}{branch}{read.name} ({read.source}) by {_found(read)}"
            continue
        first, *rest = _tree(below, by_name, before + further)
        yield f"{before}{branch}by {_found(read)}: {first}"
        yield from rest


def _found(read: Read) -> str:
    """By which columns its rows are found, and which columns of other tables hold these."""
    return " = ".join(", ".join(columns) for columns in (read.by, read.refers) if columns)
