"""Back in time: a view as it was, computed again from the log as far as it went then.

A moment is a time, or the offsets up to which the log is read. A time means the records that were written before it.
Values that were erased since then stay erased.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from projections.declaring.columns import shown
from projections.declaring.group import ProjectionGroup
from projections.declaring.naming import checked_identifier
from projections.declaring.views import View
from projections.environment import Environment
from projections.errors import InvalidDefinition
from projections.lifecycle.recomputing import ComputedRows, Recomputation, recomputed, up_to
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.ranges import open_boundaries
from projections.spark.failures import analysed
from projections.spark.picking import in_order
from projections.spark.reading.completeness import require_complete
from projections.spark.views.view_functions import personal_columns, view_columns
from projections.stores.behind_rows import SourceRow, Walk
from projections.stores.comparison import DifferingRow
from projections.stores.histories import require_zone
from projections.stores.locks import VERIFIER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Moment: TypeAlias = "datetime | Offsets"
_LIMIT: Final = 20


def read_view(
    environment: Environment,
    group: ProjectionGroup,
    view: str,
    *,
    at: Moment,
    where: str | None = None,
    most: int | None = None,
    into: str | None = None,
) -> pa.Table:
    """Return the rows of a view as they were at a moment, in the order of its key.

    Args:
        environment: The connections.
        group: The group. It need not have been built.
        view: The name of the view.
        at: A time with its zone, or offsets by topic and partition. A topic that is not named is read to its end.
        where: A condition in Spark's SQL over the view's columns.
        most: Return at most this many rows.
        into: Write all rows into a new table of this name too, next to the views.

    Raises:
        InvalidDefinition: The view, a topic or a column is unknown, an offset is beyond the end, or ``into`` is taken.
        OffsetsLost: The log no longer reaches back to the moment. The error names the one from which it does.

    Examples:
        >>> read_view(environment, shop_views, "orders_by_region", at=datetime(2026, 11, 1, 12, tzinfo=UTC))
    """
    if into is not None:
        checked_identifier(into, what="table")
        _require_no_personal(environment, group, view, into)
    with _at(environment, group, at) as past:
        rows = _filtered(past, view, where)
        if into is not None:
            _write(past, view, rows, into)
        return in_order(rows, past.group.view(view).key, most=most)


def _require_no_personal(environment: Environment, group: ProjectionGroup, view: str, into: str) -> None:
    if personal := sorted(personal_columns(environment.spark, group).get(view, ())):
        raise InvalidDefinition(
            f"column {personal[0]!r} of view {view!r} has values of persons, which no erasure would reach in {into!r}",
            remedy="read the rows without into=…",
        )


def _write(past: Recomputation, view: str, rows: DataFrame, into: str) -> None:
    store, columns = past.environment.store, shown(past.columns[view])
    table = store.create_table(into, columns)
    try:
        past.environment.keeper.load(rows, table, rows=past.rows)
    except BaseException:
        store.drop_table(table)
        raise


@dataclass(frozen=True)
class ChangedRow:
    """A row that differs between two moments, and the source rows that records in between have changed.

    Attributes:
        row: The key, and the row at both moments: ``one`` earlier, ``other`` later.
        records: The source rows, each with the topic and offset of its record.
    """

    row: DifferingRow
    records: tuple[SourceRow, ...]


@dataclass(frozen=True)
class ViewChanges:
    """What differs in a view between two moments.

    Attributes:
        rows_before: The rows at the earlier moment.
        rows_after: The rows at the later one.
        changed: Rows that differ, not more than were asked for on each side.

    Examples:
        >>> changes = view_changes(environment, shop_views, "orders_by_region", start=monday, end=tuesday)
        >>> changes.changed[0].records[0].offset
        127
    """

    rows_before: int
    rows_after: int
    changed: tuple[ChangedRow, ...]


def view_changes(
    environment: Environment,
    group: ProjectionGroup,
    view: str,
    *,
    start: Moment,
    end: Moment,
    where: str | None = None,
    most: int = _LIMIT,
) -> ViewChanges:
    """Return the rows of a view that differ between two moments, and by which records.

    ``most`` bounds the rows of each side. The other arguments and errors are those of `read_view`. Raises
    NoServingGeneration or RunAlreadyActive: the rows are compared in the views' database, by one process at a time.

    Examples:
        >>> view_changes(environment, shop_views, "orders_by_region", start=monday, end=tuesday).rows_after
        200
    """
    store, columns = environment.store, view_columns(environment.spark, group)
    run, layout = store.serving(group, columns)
    with (
        store.exclusive(group.name, role=VERIFIER),
        environment.keeper.copies(run, layout) as copies,
        _at(environment, group, start) as before,
        _at(environment, group, end) as after,
    ):
        copies.make()
        place = layout.views[group.view(view).name]
        for past, copy in ((before, place.live_copy), (after, place.recomputed_copy)):
            past.load(_filtered(past, view, where), copy)
        result = copies.of_both(view, most=most)
        walks = [Walk(past.group, ComputedRows(past)) for past in (before, after)]
        changed = (ChangedRow(row, tuple(_records(walks, view, row))) for row in result.differing)
        return ViewChanges(result.one.count, result.other.count, tuple(changed))


def _records(walks: Sequence[Walk], view: str, row: DifferingRow) -> Iterator[SourceRow]:
    """The source rows of either moment that do not come from the same record at both."""
    before, after = (
        {(found.table, *found.key.values()): found for found in walk.sources(view, row.key, side) if found.topic}
        for walk, side in zip(walks, (row.one or row.other, row.other or row.one), strict=True)
    )
    yield from (found for place, found in after.items() if place not in before or before[place].offset != found.offset)
    yield from (found for place, found in before.items() if place not in after)


def _at(environment: Environment, group: ProjectionGroup, moment: Moment) -> AbstractContextManager[Recomputation]:
    with environment.log.open() as log:
        ends = log.end_offsets(list(group.topics))
        if isinstance(moment, datetime):
            require_zone(moment)
            cut = log.offsets_at(moment, list(group.topics))
        else:
            cut = _offsets(moment, ends)
    whole = up_to(environment, group, ends)
    cut = _of_whole_transactions(environment, group, OffsetRange(whole.start, cut))
    require_complete(environment, group, whole, cut)
    return recomputed(environment, group, cut)


def _offsets(asked: Offsets, ends: Offsets) -> Offsets:
    for topic, parts in asked.items():
        for partition, offset in parts.items():
            if not 0 <= offset <= ends.get(topic, {}).get(partition, -1):
                raise InvalidDefinition(
                    f"the group reads no offset {offset} of topic {topic!r}, partition {partition}",
                    remedy=f"name offsets up to the end of its log: {_said(ends)}",
                )
    return {topic: {**parts, **asked.get(topic, {})} for topic, parts in ends.items()}


def _said(offsets: Offsets) -> str:
    return ", ".join(f"{topic}[{p}]@{offset}" for topic, parts in offsets.items() for p, offset in parts.items())


def _of_whole_transactions(environment: Environment, group: ProjectionGroup, offsets: OffsetRange) -> Offsets:
    if not group.transactions:
        return offsets.end
    with open_boundaries(environment.log, group) as boundaries:
        whole, rest = boundaries.within(offsets.start, offsets.end, most=offsets.records)
    return {**rest, **whole}


def _known(past: Recomputation, view: str) -> View:
    found = past.group.view(view)
    if found.final is not None:
        raise InvalidDefinition(
            f"view {view!r} has final results, which depend on when its runs gave them out",
            remedy="look at them: factfold projections finals",
        )
    return found


def _filtered(past: Recomputation, view: str, where: str | None) -> DataFrame:
    place = _known(past, view).place
    rows = past.view(view).select(*shown(past.columns[view]))
    if where is None:
        return rows
    with analysed(view, place):
        return rows.where(where)
