"""What a comparison of two generations asks of the database: common columns, a copy of one moment, differing rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from projections.stores import retained, runs
from projections.stores.layout import GenerationLayout, generation_name
from projections.stores.port import DifferingRow
from projections.stores.runs import Progress, Run
from projections.stores.sql import SqlTableStore

_SAMPLE: Final = 5  # of each side: enough to see what is wrong


def common_columns(store: SqlTableStore, serving: Run, layout: GenerationLayout) -> dict[str, tuple[str, ...]]:
    """The columns, by view, that the serving generation has of the same types; views of which it has the key.

    Its definition may no longer exist: its tables have the columns. Views that forget rows are left out, as incomplete.
    """
    columns = {}
    with store.looking() as connection:
        for name, view in layout.views.items():
            if retained.forgets(layout, name):
                continue
            theirs = _columns(connection, of_generation(serving, layout, view.view))
            ours = {c: view.view.c[c].type.compile(dialect=connection.dialect) for c in view.columns}
            common = tuple(c for c, kind in ours.items() if theirs.get(c) == kind)
            if set(view.definition.key) <= set(common):
                columns[name] = common
    return columns


def of_generation(run: Run, layout: GenerationLayout, table: sa.Table) -> sa.Table:
    """The table of the same name in another generation, its columns unknown."""
    theirs = generation_name(run.group, run.generation)
    if table.schema:
        return sa.Table(table.name, sa.MetaData(schema=theirs))
    return sa.Table(f"{theirs}{table.name.removeprefix(layout.name)}", sa.MetaData())


def _columns(connection: sa.Connection, table: sa.Table) -> dict[str, str]:
    """The columns of a table by their SQL types; none where there is no such table."""
    inspected = sa.inspect(connection)
    if not inspected.has_table(table.name, schema=table.schema):
        return {}
    columns = inspected.get_columns(table.name, schema=table.schema)
    return {column["name"]: column["type"].compile(dialect=connection.dialect) for column in columns}


def copy_serving(
    store: SqlTableStore, serving: Run, layout: GenerationLayout, common: Mapping[str, Sequence[str]]
) -> Progress:
    """Copy the serving generation's views into those of ``live_copy``, and return its progress, as of one moment."""
    drop_copies(store, layout)
    with store.snapshot() as connection:
        for name, columns in common.items():
            view = layout.views[name]
            view.live_copy.create(connection)
            source = of_generation(serving, layout, view.view)
            selected: list[sa.ColumnElement[Any]] = [sa.column(c) for c in columns]
            rows = sa.select(*selected).select_from(source)
            connection.execute(sa.insert(view.live_copy).from_select(list(columns), rows))
        return runs.read_progress(connection, serving)


def drop_copies(store: SqlTableStore, layout: GenerationLayout) -> None:
    """Remove what ``copy_serving`` made, or what a killed comparison left."""
    with store.transaction() as connection:
        for view in layout.views.values():
            connection.execute(sa.schema.DropTable(view.live_copy, if_exists=True))


def differing_rows(
    store: SqlTableStore, one: sa.Table, other: sa.Table, *, key: Sequence[str], columns: Sequence[str]
) -> tuple[DifferingRow, ...]:
    """Some rows that only one of two tables has, or that differ: at most five found from each side."""
    with store.looking() as connection:
        keys = dict.fromkeys(
            tuple(row)
            for left, right in ((one, other), (other, one))
            for row in connection.execute(_only_left(store, left, right, key, columns))
        )
        sides = [_rows_at(connection, table, key, columns, list(keys)) for table in (one, other)]
    return tuple(DifferingRow(dict(zip(key, k, strict=True)), *(side.get(k) for side in sides)) for k in keys)


def _only_left(
    store: SqlTableStore, left: sa.Table, right: sa.Table, key: Sequence[str], columns: Sequence[str]
) -> sa.Select[Any]:
    rest = store.minus(*(sa.select(*(table.c[c] for c in columns)) for table in (left, right))).subquery()
    return sa.select(*(rest.c[c] for c in key)).limit(_SAMPLE)


def _rows_at(
    connection: sa.Connection,
    table: sa.Table,
    key: Sequence[str],
    columns: Sequence[str],
    keys: Sequence[tuple[Any, ...]],
) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """The rows of a few keys, a part of which may be null."""
    conditions = [
        sa.and_(*(table.c[c].is_not_distinct_from(v) for c, v in zip(key, values, strict=True))) for values in keys
    ]
    rows = connection.execute(sa.select(*(table.c[c] for c in columns)).where(sa.or_(sa.false(), *conditions)))
    return {tuple(row[c] for c in key): dict(row) for row in rows.mappings()}


def count(store: SqlTableStore, table: sa.Table) -> int:
    """The rows of a table."""
    with store.looking() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)
