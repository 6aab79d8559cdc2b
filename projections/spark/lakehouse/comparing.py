"""Views compared with other rows, by the executors: digests, counts, and some rows that differ.

Nothing is copied, because a version of a table is a copy as of one moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from projections.logs.set_aside import SetAside
from projections.spark.exchange import few_rows
from projections.spark.keeping import Difference, Rows
from projections.spark.lakehouse.aside import read_set_aside
from projections.spark.lakehouse.ledger import Entry
from projections.spark.lakehouse.materialized import within
from projections.spark.lakehouse.places import DeltaGeneration, DeltaViewPlace, view_name
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.persisting import persisted
from projections.spark.python_workers import settled
from projections.stores.digest import digest_rows
from projections.stores.port import DifferingRow
from projections.stores.runs import Progress, Run, superseded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLE: Final = 5  # of each side: enough to see what is wrong


@dataclass(frozen=True)
class LiveViews:
    """The views of a run at the versions that its ledger named at one moment."""

    layout: DeltaGeneration
    entry: Entry

    @property
    def progress(self) -> Progress:
        """How far the run had come at that moment."""
        return self.entry.state.progress

    def set_aside(self) -> SetAside:
        """The records that the views were made without."""
        aside = self.layout.aside
        return read_set_aside(aside, at=self.entry.tables.get(aside.name), before=self.progress)

    def compared(self, view: str, again: DataFrame, *, rows: int) -> Difference:
        """The view compared with what is computed again."""
        place = self.layout.views[view]
        again = persisted(again)
        try:
            return difference(place, place.view.rows(self.entry.tables[place.view.name]), again, list(place.columns))
        finally:
            again.unpersist()


@dataclass
class ServingViews:
    """The serving generation's views, at the versions of the moment they were taken, and another generation's."""

    store: DeltaTableStore
    serving: Run
    run: Run
    layout: DeltaGeneration
    columns: Mapping[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._taken = self._now(self.serving)
        common = {name: self._common(place) for name, place in self.layout.views.items()}
        self.columns = {
            name: columns
            for name, columns in common.items()
            if set(self.layout.views[name].definition.key) <= set(columns)
        }

    def take(self) -> Progress:
        """Keep the versions of this moment, and return its progress."""
        self._taken = self._now(self.serving)
        return self._taken.state.progress

    def compared(self, view: str) -> Difference:
        """The taken views compared with the other generation's current rows."""
        place = self.layout.views[view]
        ours = place.view.rows(self._now(self.run).tables[place.view.name])
        return difference(place, self._theirs(view), ours, self.columns[view])

    def _common(self, place: DeltaViewPlace) -> tuple[str, ...]:
        """The columns that the serving view has of the same types, by its table: its definition may be missing."""
        if view_name(place.name) not in self._taken.tables:
            return ()
        theirs = {f.name: f.dataType.simpleString() for f in self._theirs(place.name).schema.fields}
        return tuple(name for name, column in place.columns.items() if theirs.get(name) == column.ddl)

    def _theirs(self, view: str) -> DataFrame:
        name = view_name(view)
        return self.store.table(self.serving, name).rows(self._taken.tables[name])

    def _now(self, run: Run) -> Entry:
        entry = self.store.entry(run)
        if entry is None:
            raise superseded(run)
        return entry


def difference(place: DeltaViewPlace, one: DataFrame, other: DataFrame, columns: Sequence[str]) -> Difference:
    """Two sets of rows of a view, over some of its columns."""
    sides = [rows.select(*columns) for rows in (one, other)]
    exact = all(place.columns[column].kind != "double" for column in columns)
    digests = [_digested(rows, place.definition.key) if exact else Rows(None, rows.count()) for rows in sides]
    return Difference(digests[0], digests[1], _differing(sides[0], sides[1], place.definition.key))


def _digested(rows: DataFrame, key: Sequence[str]) -> Rows:
    """The digest over all rows in the order of their key, by one task that holds a batch of them at a time."""
    ordered = rows.repartition(1).sortWithinPartitions(*key)
    (result,) = ordered.mapInArrow(settled(_digest), "digest string, rows bigint").toArrow().to_pylist() or [
        _OF_NOTHING
    ]
    return Rows(result["digest"], result["rows"])


def _digest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    digest, rows = digest_rows(batches)
    yield pa.RecordBatch.from_pydict({"digest": [digest], "rows": [rows]})


_OF_NOTHING: Final = dict(zip(("digest", "rows"), digest_rows([]), strict=True))


def _differing(one: DataFrame, other: DataFrame, key: Sequence[str]) -> tuple[DifferingRow, ...]:
    """Some rows that only one side has, or that differ."""
    names = list(key)
    only = [
        left.exceptAll(right).select(*names).limit(_SAMPLE).toArrow() for left, right in ((one, other), (other, one))
    ]
    keys = pa.concat_tables(only).group_by(names, use_threads=False).aggregate([])
    if not keys.num_rows:
        return ()
    sample = few_rows(one.sparkSession, keys)
    sides = [_by_key(within(rows, names, sample, nullable=True), names) for rows in (one, other)]
    return tuple(
        DifferingRow(dict(zip(names, k, strict=True)), sides[0].get(k), sides[1].get(k))
        for k in (tuple(row[name] for name in names) for row in keys.to_pylist())
    )


def _by_key(rows: DataFrame, key: Sequence[str]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {tuple(row[name] for name in key): row for row in rows.toArrow().to_pylist()}
