"""Views of a generation compared with other rows of the same keys: copies of one moment, digests, differing rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from projections.declaring.columns import ColumnType
from projections.errors import InvalidDefinition
from projections.logs.set_aside import SetAside
from projections.stores import forgetting, runs
from projections.stores.aside import read_set_aside
from projections.stores.layout import GenerationLayout, ViewLayout, generation_name
from projections.stores.runs import Progress, Run
from projections.stores.sql import TableStore

_SAMPLE: Final = 5  # of each side: enough to see what is wrong


@dataclass(frozen=True)
class DifferingRow:
    """A key at which two tables differ, and what each has there; None for no row."""

    key: Mapping[str, Any]
    one: Mapping[str, Any] | None
    other: Mapping[str, Any] | None


@dataclass(frozen=True)
class Rows:
    """What a comparison says of one of its sides: the digest, None where a column has none, and how many rows."""

    digest: str | None
    count: int


@dataclass(frozen=True)
class Difference:
    """Two sides of a comparison, and some rows that differ: at most five of each side."""

    one: Rows
    other: Rows
    differing: tuple[DifferingRow, ...]


@dataclass(frozen=True)
class Copies:
    """Views of a run as of one moment, in the copies of a layout, with the columns that are compared of each view."""

    store: TableStore
    run: Run
    layout: GenerationLayout
    columns: Mapping[str, Sequence[str]]

    def make(self) -> None:
        """Make the copies, empty."""
        self.drop()
        with self.store.transaction() as connection:
            for name in self.columns:
                self.layout.views[name].live_copy.create(connection)
                self.layout.views[name].recomputed_copy.create(connection)

    def take(self, *, most: int | None = None) -> Progress:
        """Copy the views, or the first rows of each by its key, and return the progress of that moment."""
        self.make()
        with self.store.snapshot() as connection:
            for name, columns in self.columns.items():
                view = self.layout.views[name]
                source = of_generation(self.run, self.layout, view.view)
                selected: list[sa.ColumnElement[Any]] = [sa.column(c) for c in columns]
                rows = sa.select(*selected).select_from(source)
                if most is not None:
                    rows = rows.order_by(*map(sa.column, view.definition.key)).limit(most)
                connection.execute(sa.insert(view.live_copy).from_select(list(columns), rows))
            return runs.read_progress(connection, self.run)

    def set_aside(self, progress: Progress) -> SetAside:
        """Return the records that the views were made without at the moment of a progress."""
        with self.store.transaction() as connection:
            return read_set_aside(connection, self.layout, before=progress)

    def against_recomputed(self, name: str, *, most: int = _SAMPLE) -> Difference:
        """Compare a view with the rows that were loaded into its recomputed copy; ``most`` rows of each side."""
        with self.store.transaction() as connection:
            forgetting.leave_out_of_copies(connection, self.layout, self.layout.views[name])
        return self.of_both(name, most=most)

    def of_both(self, name: str, *, most: int = _SAMPLE) -> Difference:
        """Compare the two copies of a view as they were loaded."""
        view = self.layout.views[name]
        return self._compared(view, view.recomputed_copy, most=most)

    def against_stored(self, name: str) -> Difference:
        """Compare a view of another generation with the present rows of this layout."""
        return self._compared(self.layout.views[name], self.layout.views[name].view)

    def drop(self) -> None:
        """Remove what `take` made, or what a killed comparison left."""
        with self.store.transaction() as connection:
            for view in self.layout.views.values():
                for copy in (view.live_copy, view.recomputed_copy):
                    connection.execute(sa.schema.DropTable(copy, if_exists=True))

    def _compared(self, view: ViewLayout, other: sa.Table, *, most: int = _SAMPLE) -> Difference:
        columns = self.columns[view.name]
        shown = {column: view.columns[column] for column in columns if column in view.columns}
        key = view.definition.key
        return compared(self.store, view.live_copy, other, key=key, columns=columns, shown=shown, most=most)


def compared(
    store: TableStore,
    one: sa.Table,
    other: sa.Table,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    shown: Mapping[str, ColumnType],
    most: int = _SAMPLE,
) -> Difference:
    """Compare two tables of one database: digests of the columns that are shown, and rows that differ in any column."""
    differing = differing_rows(store, one, other, key=key, columns=columns, most=most)
    return Difference(_digested(store, one, key, shown), _digested(store, other, key, shown), differing)


def _digested(store: TableStore, table: sa.Table, key: Sequence[str], shown: Mapping[str, ColumnType]) -> Rows:
    if all(kind.kind != "double" for kind in shown.values()):
        return Rows(*digest_rows(store.target(table).fetch(shown, order_by=key)))
    with store.looking() as connection:
        return Rows(None, int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0))


def common_columns(store: TableStore, serving: Run, layout: GenerationLayout) -> dict[str, tuple[str, ...]]:
    """The columns, by view, that the serving generation has of the same types; views of which it has the key.

    Its definition may no longer exist: its tables have the columns. Views that forget rows are left out, as incomplete.
    """
    columns = {}
    with store.looking() as connection:
        for name, view in layout.views.items():
            if forgetting.forgets(layout, name):
                continue
            theirs = stored_columns(connection, of_generation(serving, layout, view.view))
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


def stored_columns(connection: sa.Connection, table: sa.Table) -> dict[str, str]:
    """The columns of a table by their SQL types; none where there is no such table."""
    inspected = sa.inspect(connection)
    if not inspected.has_table(table.name, schema=table.schema):
        return {}
    columns = inspected.get_columns(table.name, schema=table.schema)
    return {column["name"]: column["type"].compile(dialect=connection.dialect) for column in columns}


def differing_rows(
    store: TableStore,
    one: sa.Table,
    other: sa.Table,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    most: int = _SAMPLE,
) -> tuple[DifferingRow, ...]:
    """Some rows that only one of two tables has, or that differ: at most so many found from each side."""
    with store.looking() as connection:
        keys = dict.fromkeys(
            tuple(row)
            for left, right in ((one, other), (other, one))
            for row in connection.execute(_only_left(store, left, right, key, columns).limit(most))
        )
        sides = [_rows_at(connection, table, key, columns, list(keys)) for table in (one, other)]
    return tuple(DifferingRow(dict(zip(key, k, strict=True)), *(side.get(k) for side in sides)) for k in keys)


def _only_left(
    store: TableStore, left: sa.Table, right: sa.Table, key: Sequence[str], columns: Sequence[str]
) -> sa.Select[Any]:
    rest = store.minus(*(sa.select(*(table.c[c] for c in columns)) for table in (left, right))).subquery()
    return sa.select(*(rest.c[c] for c in key)).order_by(*(rest.c[c] for c in key))


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


def digest_rows(batches: Iterable[pa.RecordBatch]) -> tuple[str, int]:
    """The digest and number of rows of batches that come sorted by key: equal for equal rows, whatever computed them.

    sha256 over the rows in the order of their key (texts by their bytes), in 64 hexadecimal digits: every value as
    text, null as a zero byte, values divided by 0x1f and rows by 0x1e. Doubles are refused: two correct computations
    may differ in their last bit.
    """
    digest, rows = hashlib.sha256(), 0
    for batch in batches:
        rows += batch.num_rows
        if batch.num_rows:
            digest.update("".join(_lines(batch).to_pylist()).encode())
    return digest.hexdigest(), rows


def _lines(batch: pa.RecordBatch) -> pa.Array:
    """One text a row; joined column by column, not row by row."""
    texts = [_texts(batch.column(i), batch.schema.field(i).name) for i in range(batch.num_columns)]
    joined = pc.binary_join_element_wise(*texts, "\x1f") if len(texts) > 1 else texts[0]
    return pc.binary_join_element_wise(joined, "", "\x1e")


def _texts(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_floating(column.type):
        raise InvalidDefinition(
            f"column {name!r} is a floating-point number, which has no digest", remedy="use Decimal or leave it out"
        )
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_binary(column.type):
        column = pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string())
    return pc.fill_null(column.cast(pa.string()), "\x00")
