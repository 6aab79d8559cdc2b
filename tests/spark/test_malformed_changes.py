"""What is no change of a row is set aside by Spark too, and nothing else: the table of Python's decoder."""

from __future__ import annotations

from typing import Any

from projections import Table
from projections.logs.set_aside import SetAside
from projections.spark.judging import Judge
from projections.spark.kinds import Reduction
from projections.spark.reading.records import without
from tests.rows import each_row
from tests.unit.cdc.malformed_changes import ITEMS, MALFORMED, registered, written
from tests.unit.cdc.schema_changes import SCHEMAS

RAW = "topic string, partition int, offset bigint, key binary, value binary"
KINDS = {"changelog": Table.from_changelog, "versions": Table.versions_of}


@each_row(("kind", "encoding"), [*(("changelog", encoding) for encoding in MALFORMED), ("versions", "json")])
def test_what_is_no_change_of_a_row_is_set_aside_and_nothing_else(small: Any, kind: str, encoding: str) -> None:
    known = {i: registered(i) for i in SCHEMAS}
    bad = MALFORMED[encoding]
    good = {what: record for what, record in written(encoding).items() if kind == "changelog" or what != "of no time"}
    names = [*bad, *good]
    rows = [("t", 0, n, *map(bytearray, (bad | good)[what])) for n, what in enumerate(names)]
    raw = small.createDataFrame(rows, RAW).coalesce(1)
    table: Any = KINDS[kind](ITEMS, topic="t", encoding=encoding)

    judge, found = Judge(known, small), SetAside.nothing()
    while new := judge.faults(table, without(raw, found)):
        found |= new

    assert {names[fault.offset] for fault in found} == bad.keys()
    assert Reduction(known).reduce(without(raw, found), table).collect()
