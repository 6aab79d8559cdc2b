"""What is wrong with a change event: the rules of `change_events`, put as a question where they fail a query there.

A record that is no change of a row because its table was emptied (TRUNCATE) has no fault here: a view that went on
without it would be wrong in every row, so that it always stops the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.changes.rules import FIELD_EPOCH
from projections.declaring.tables import ChangelogTable, VersionTable
from projections.spark.changes.absent import absent_columns, listed
from projections.spark.changes.change_events import (
    is_change,
    is_sent,
    no_row,
    parsed_columns,
    places_in_source,
)
from projections.spark.changes.parsers import RecordParser
from projections.spark.changes.semantic_types import typed
from projections.spark.changes.unavailable import placeholder
from projections.spark.changes.versions import TIMES, committed_at
from projections.spark.failures import FAULT, fault, no_fault

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACE = ("topic", "partition", "offset")


def prepare_unreadable(parser: RecordParser) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records to those of no known schema: their places, and a column `_fault`."""
    fault_row = _rows_of(parser.unreadable())
    return lambda raw: raw.select(*_PLACE, fault_row)


def prepare_misfits(table: ChangelogTable | VersionTable, parser: RecordParser) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records that can all be parsed to those that `typed_columns` would refuse, likewise."""
    versions = isinstance(table, VersionTable)
    parsed = parsed_columns(table, parser, times=TIMES if versions else ())
    faults = [*_of_key(table, parser), *_of_row(table, parser), *_of_change(versions=versions)]
    if versions:
        lacking = absent_columns(table, parser)
        faults.append(F.when(F.length(lacking) > 0, fault("column_absent_in_version", listed(lacking))))
    fault_row = _rows_of(F.coalesce(*faults))
    # Versions are made of changes alone, and a tombstone has only a key.
    condition = "value IS NOT NULL" if versions else "true"
    return lambda raw: raw.where(condition).select(*parsed).select(*_PLACE, fault_row)


def _rows_of(faults: Column) -> Column:
    """A row where there is a fault, and none elsewhere.

    A filter would be moved below the parsed columns, and parse a record once for each of its questions: in Avro, by
    three writers' schemas, planning that took a minute.
    """
    return F.explode(F.array_compact(F.array(faults))).alias(FAULT)


def _fault_unless_truncated(kind: str) -> Column:
    return no_fault() if kind == "truncated" else fault(kind)


def _of_key(table: ChangelogTable | VersionTable, parser: RecordParser) -> Iterator[Column]:
    for c in table.key:
        missing = typed(F.col("k")[c], table.columns[c], parser.form("k", c)).isNull()
        yield F.when(missing, no_row(_fault_unless_truncated, otherwise=fault("bad_value", F.lit(c))))


def _of_row(table: ChangelogTable | VersionTable, parser: RecordParser) -> Iterator[Column]:
    mark = placeholder()
    for c in table.payload:
        text, kind = F.col("v.after")[c], table.columns[c]
        misfit = is_sent(text, kind, mark) & typed(text, kind, parser.form("v", c), mark).isNull()
        yield F.when(misfit, fault("bad_value", F.lit(c)))


def _of_change(*, versions: bool) -> Iterator[Column]:
    sent, said = ~F.col("_tombstone"), F.col("v")[FIELD_EPOCH]
    applied = is_change()
    yield F.when(sent & ~applied, no_row(_fault_unless_truncated, otherwise=fault("bad_json")))
    yield F.when(sent & said.isNotNull() & said.try_cast("bigint").isNull(), fault("bad_json"))
    yield F.when(sent & applied & F.coalesce(*places_in_source()).isNull(), fault("bad_json"))
    if versions:
        yield F.when(applied & committed_at().isNull(), fault("no_source_time"))
