"""Groups of SQL views, live on Spark over a log in memory, held against DuckDB's answers to the same texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot

from eventstore.closing import Closing
from projections import Environment, ProjectionGroup, open_runner, rebuild, sql_view
from projections.errors import InvalidDefinition
from projections.spark.views.view_functions import view_columns
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance.toy_tables import Change, Play, Toy

FOLDER = Path(__file__).parent
Answer = tuple[list[str], list[tuple[Any, ...]]]  # columns and rows


def texts(suite: str) -> dict[str, str]:
    """The queries of a suite in Spark's SQL, by name."""
    paths = (path for path in (FOLDER / suite).glob("*.sql") if not path.stem.endswith(".duckdb"))
    return {f"{suite}_{path.stem}": path.read_text() for path in sorted(paths)}


def of_duckdb(name: str, text: str) -> str:
    """The query in DuckDB's SQL: one that is written by hand for it, or else a translation."""
    suite, _, query = name.partition("_")
    by_hand = FOLDER / suite / f"{query}.duckdb.sql"
    return by_hand.read_text() if by_hand.exists() else sqlglot.transpile(text, read="spark", write="duckdb")[0]


def answers(play: Play, queries: Mapping[str, str]) -> dict[str, Answer]:
    """DuckDB's answer to each query, which is in its own SQL, over the rows of the play."""
    with duckdb.connect(config={"threads": 1}) as engine:
        for name, (table, rows) in play.current().items():
            engine.register(name, pa.Table.from_pylist(rows, pa.schema(_fields(table.columns))))
        return {name: _answer(engine, name, text) for name, text in queries.items()}


def _answer(engine: Any, name: str, text: str) -> Answer:
    try:
        found = engine.execute(text)
    except duckdb.Error as error:
        raise AssertionError(f"DuckDB refuses {name}: {error}\n{text}") from error
    return [column[0] for column in found.description], found.fetchall()


def _fields(columns: Mapping[str, Any]) -> Iterator[tuple[str, pa.DataType]]:
    """Times without a zone: DuckDB needs no extension for them."""
    for name, column in columns.items():
        yield name, pa.timestamp("us") if column.kind == "timestamp" else column.arrow()


def refusals(spark: Any, queries: Mapping[str, str], toys: Mapping[str, Toy]) -> dict[str, InvalidDefinition]:
    """Those of the queries that are refused, each with its error. Any other error is raised."""
    found, tables = {}, {name: toy.table for name, toy in toys.items()}
    for name, text in queries.items():
        try:
            view = sql_view(name, text, tables=tables)
            view_columns(spark, ProjectionGroup(f"only_{name}", [view]))
        except InvalidDefinition as refused:
            found[name] = refused
        except Exception as error:
            raise AssertionError(f"{name} ends with {type(error).__name__}: {error}\n{text}") from error
    return found


class InMemory:
    """The changes of a play in topics in memory."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log: Any = log or MemoryLog()
        self._writer = ChangeWriter(self.log)

    def write(self, changes: Iterable[Change]) -> None:
        """Append changes to the topics."""
        for change in changes:
            if change.gone:
                self._writer.delete(change.table, {c: change.row[c] for c in change.table.key})
            else:
                self._writer.put(change.table, change.row)


class LiveQueries(Closing):
    """Queries as the views of one group. They are built over the rows of a play, and follow its changes."""

    def __init__(
        self, spark: Any, name: str, queries: Mapping[str, str], play: Play, store: Any, changes: Any = None
    ) -> None:
        self._play, self._held = play, ExitStack()
        self._texts = dict(queries)
        self._queries = {name: of_duckdb(name, text) for name, text in queries.items()}
        tables = {name: toy.table for name, toy in play.toys.items()}
        views = [sql_view(name, text, tables=tables) for name, text in queries.items()]
        self.group = ProjectionGroup(name, views)
        self._store = store
        self._changes = changes or InMemory()
        self._environment = Environment(spark, spark, self._store, self._changes.log)
        self._changes.write(play.begin())
        rebuild(self._environment, self.group)
        _, self._layout = self._store.serving(self.group, view_columns(spark, self.group))
        self._runner = self._held.enter_context(open_runner(self._environment, self.group))

    def close(self) -> None:
        """Close the runner."""
        self._held.close()

    def follow(self) -> None:
        """Carry the next changes of the play into the views, in one live batch."""
        self.write()
        self.catch_up()

    def write(self) -> None:
        """Write the next changes of the play."""
        self._changes.write(self._play.batch())

    def catch_up(self) -> None:
        """Carry what is written into the views."""
        self._runner.catch_up()

    def is_as_rebuilt(self) -> bool:
        """A new generation has the same rows."""
        report = rebuild(self._environment, self.group)
        return report.not_compared is None and not report.differs

    def wrong(self) -> dict[str, str]:
        """The views that differ from DuckDB's answers, each with a first difference and its text."""
        right = answers(self._play, self._queries)
        found = {name: self._difference(name, *answer) for name, answer in right.items()}
        return {name: f"{where}\n{self._texts[name]}" for name, where in found.items() if where}

    def require_equal(self, batches: int) -> None:
        """Each view is DuckDB's answer after the first build and after each batch, and in the end a rebuilt view."""
        for batch in range(batches + 1):
            if batch:
                self.follow()
            wrong = self.wrong()
            assert not wrong, f"after batch {batch}: {wrong}"
        assert self.is_as_rebuilt()

    def _difference(self, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str | None:
        layout = self._layout.views[name]
        kinds = dict(islice(layout.columns.items(), len(columns)))  # what it has to have a key comes behind
        served = self._store.target(layout.view).fetch(layout.columns)
        found = [_decimals(row, kinds) for batch in served for row in batch.to_pylist()]
        if any(a.lower() != b.lower() for a, b in zip(kinds, columns, strict=True) if b.isidentifier()):
            return f"columns {list(kinds)} instead of {columns}"
        right = [dict(zip(kinds, row, strict=True)) for row in rows]
        return first_difference(kinds, found, right)


def first_difference(kinds: Mapping[str, Any], found: Sequence[Any], right: Sequence[Any]) -> str | None:
    """Where two bags of rows differ. Floats may differ by a billionth, rounded decimals by a half of the last digit."""
    loose = {c for c, kind in kinds.items() if kind.kind == "double" or any(isinstance(r[c], float) for r in right)}
    order = [*(c for c in kinds if c not in loose), *loose]
    bags = [sorted(([_plain(row[c]) for c in order] for row in rows), key=_sortable) for rows in (found, right)]
    for one, other in zip(*bags, strict=False):
        if not all(_equal(a, b, kinds[c], c in loose) for c, a, b in zip(order, one, other, strict=True)):
            return f"{order}: {one} instead of {other}"
    return None if len(found) == len(right) else f"{len(found)} rows instead of {len(right)}"


def _decimals(row: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the store, in which decimals are text."""
    decimals = {c: Decimal(row[c]) for c, kind in kinds.items() if kind.kind == "decimal" and row[c] is not None}
    return {**row, **decimals}


def _plain(value: Any) -> Any:
    """A value in a form that both engines share."""
    if isinstance(value, Decimal) or type(value) is int:
        return Decimal(value).normalize() + 0
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _sortable(row: Sequence[Any]) -> list[tuple[bool, Any]]:
    return [(value is None, 0 if value is None else value) for value in row]


def _equal(found: Any, right: Any, kind: Any, loose: bool) -> bool:
    if not loose or found is None or right is None:
        return found == right
    one, other = float(found), float(right)
    rounded = 0.5001 * 10.0**-kind.scale if kind.kind == "decimal" else 0.0
    return abs(one - other) <= rounded + 1e-9 * max(abs(one), abs(other), 1e-300)
