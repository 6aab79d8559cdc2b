"""A column that a change event lacks is no NULL in Spark either; only the newest record of a key must have them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from projections import Table
from projections.errors import InvalidDefinition, UndecodableRecord
from projections.logs.set_aside import SetAside
from projections.spark.failures import described
from projections.spark.judging import Judge
from projections.spark.kinds import Reduction
from projections.spark.reading.records import without
from tests.rows import each_row
from tests.unit.cdc.schema_changes import BAD, CASES, ITEMS, OLD, SCHEMAS, WHOLE, WRITTEN, Change, flattened, registered

TOPIC = "shop.public.items"
RAW = "topic string, partition int, offset bigint, key binary, value binary"
# The key of each case's records, and where they are: case by case, a hundred offsets apart.
FIRST = {case: number * 100 for number, case in enumerate(CASES)}


def written(encoding: str) -> Iterator[dict[str, Any]]:
    for case, (changes, _) in CASES.items():
        for number, change in enumerate(changes):
            yield placed(WRITTEN[encoding](change, FIRST[case]), FIRST[case] + number)


def placed(record: Any, offset: int) -> dict[str, Any]:
    return {"topic": TOPIC, "partition": 3, "offset": offset, "key": record[0], "value": record[1]}


def frame(small: Any, records: Any) -> Any:
    rows = [{**record, "key": bytearray(record["key"]), "value": bytearray(record["value"])} for record in records]
    return small.createDataFrame(rows, RAW).coalesce(1)


def judged(small: Any, table: Table, raw: Any) -> SetAside:
    return Judge({i: registered(i) for i in SCHEMAS}, small).faults(table, raw)


def reduced(table: Table, raw: Any) -> list[dict[str, Any]]:
    with described("a test"):
        return Reduction({i: registered(i) for i in SCHEMAS}).reduce(raw, table).toArrow().to_pylist()


@each_row("encoding", WRITTEN)
def test_a_key_s_newest_record_has_every_column_or_is_set_aside(small: Any, encoding: str) -> None:
    table: Any = Table.from_changelog(ITEMS, topic=TOPIC, encoding=encoding)
    raw = frame(small, written(encoding))
    found = judged(small, table, raw)

    assert {(fault.offset, fault.detail) for fault in found} == {
        (FIRST[case] + number, ", ".join(CASES[case][0][number].lacks)) for case in BAD for number in BAD[case]
    }
    rows = {row["id"]: row for row in reduced(table, without(raw, found)) if not row["_deleted"]}
    assert {case: row_of(rows.get(FIRST[case])) for case in CASES} == {case: row for case, (_, row) in CASES.items()}
    with pytest.raises(UndecodableRecord) as refused:
        reduced(table, raw)
    assert (refused.value.message, refused.value.place) in {(one.error.message, one.error.place) for one in found}


def row_of(row: Any) -> Any:
    return row and {"name": row["name"], "tier": row["tier"], "rate": str(row["rate"])}


def test_the_cause_has_place_table_and_columns_and_the_remedy_the_command(small: Any) -> None:
    table = Table.from_changelog(ITEMS, topic=TOPIC)
    with pytest.raises(UndecodableRecord) as refused:
        reduced(table, frame(small, [placed(WRITTEN["json"](Change({"name": "Ann"}, 1), 1), 17)]))

    assert refused.value.place == f"topic {TOPIC}, partition 3, offset 17"
    assert f"no column tier, rate, which the table over topic {TOPIC} declares" in refused.value.message
    assert "factfold cdc snapshot take … --table public.items" in refused.value.remedy
    assert "null_if_absent=['tier', 'rate']" in refused.value.remedy


def test_a_row_that_is_filled_stays_at_the_place_of_the_change_that_it_replaces(small: Any) -> None:
    table = Table.from_changelog(ITEMS, topic=TOPIC)
    records = [Change(OLD, 9, lacks=("tier",)), Change(WHOLE, 9, "incremental")]
    (row,) = reduced(table, frame(small, (placed(WRITTEN["json"](c, 1), n) for n, c in enumerate(records))))

    assert (row["tier"], row["_pos"], row["_offset"], row["_at_tier"]) == ("gold", 9, 0, 9)


@each_row("encoding", WRITTEN)
def test_columns_that_are_declared_so_are_null_in_a_record_that_lacks_them(small: Any, encoding: str) -> None:
    table: Any = Table.from_changelog(ITEMS, topic=TOPIC, encoding=encoding, null_if_absent=["tier", "rate"])
    raw = frame(small, written(encoding))

    rows = {row["id"]: row for row in reduced(table, raw)}
    assert rows[FIRST["DROP COLUMN of two"]]["tier"] is rows[FIRST["DROP COLUMN"]]["tier"] is None
    assert rows[FIRST["a later change has the column"]]["tier"] == "gold"


def test_every_version_must_have_the_columns_that_are_not_declared_so(small: Any) -> None:
    records = [Change(OLD, 1), Change(WHOLE, 2)]
    timed = (placed(WRITTEN["json"](c, 1), n) for n, c in enumerate(records))
    raw = frame(small, ({**r, "value": r["value"].replace(b'"lsn"', b'"ts_ms": 5, "lsn"')} for r in timed))
    strict, declared = (Table.versions_of(ITEMS, topic=TOPIC, null_if_absent=names) for names in ([], ["tier"]))

    assert [(fault.offset, fault.kind) for fault in judged(small, strict, raw)] == [(0, "column_absent_in_version")]
    with pytest.raises(UndecodableRecord, match="no column tier") as refused:
        reduced(strict, raw)
    assert "snapshot take" not in refused.value.remedy
    assert sorted(str(row["tier"]) for row in reduced(declared, raw)) == ["None", "gold"]


def test_a_flattened_row_is_a_bad_record_whatever_its_columns_are(small: Any) -> None:
    raw = frame(small, (placed(flattened(Change(row, 1), n), n) for n, row in enumerate((OLD, WHOLE))))
    found = judged(small, Table.from_changelog(ITEMS, topic=TOPIC), raw)

    assert [(fault.offset, fault.kind) for fault in found] == [(0, "bad_json"), (1, "bad_json")]


def test_what_may_be_absent_is_a_part_of_what_a_table_means() -> None:
    plain, declared = (Table.from_changelog(ITEMS, topic=TOPIC, null_if_absent=names) for names in ([], ["tier"]))

    assert plain.signature() != declared.signature()
    with pytest.raises(InvalidDefinition, match="'id', which is no nullable column"):
        Table.versions_of(ITEMS, topic=TOPIC, null_if_absent=["id"])
