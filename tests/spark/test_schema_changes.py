"""Changes whose schema changed, whose types are others, or that are no changes, in Spark as in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from cdc.changes.column_readers import reader_for
from cdc.changes.semantic_types import Form
from projections import ProjectionGroup, Table, view
from projections.declaring.captured import key_and_columns
from projections.errors import InvalidDefinition, UndecodableRecord
from projections.logs.port import OffsetRange
from projections.logs.set_aside import SetAside
from projections.spark.changes.semantic_types import FieldForm, of_text, typed
from projections.spark.failures import described
from projections.spark.judging import Judge
from projections.spark.kinds import Reduction
from projections.spark.reading.records import without
from projections.testing.memory_log import ChangeWriter, MemoryLog
from projections.testing.trial import ViewTrial
from tests.rows import each_row
from tests.unit.cdc.schema_changes import BAD, CASES, ITEMS, OLD, SCHEMAS, WHOLE, WRITTEN, Change, flattened, registered
from tests.unit.cdc.test_placeholders import SENT

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


# ---- a column gets another type at its source


PRICES = sa.Table(
    "prices",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("amount", sa.BigInteger),
    sa.Column("name", sa.Text),
)
prices = Table.from_changelog(PRICES, topic="shop.public.prices")


@view(key="id")
def listed(prices):
    return prices.select("id", "amount", "name")


def records(small, table, column, values):
    """Changes of a table, each of which has one of the values in a column."""
    log = MemoryLog()
    changes = ChangeWriter(log)
    for number, value in enumerate(values):
        changes.put(table, {"id": number, column: value})
    return log.scan(small, OffsetRange({table.topic: {0: 0}}, log.end_offsets([table.topic])))


def test_values_that_fit_go_on_and_one_that_does_not_stops_the_run_at_its_record(spark, tmp_path):
    with ViewTrial(spark, ProjectionGroup("prices", [listed]), tmp_path) as trial:
        trial.put(prices, {"id": 1, "amount": 5, "name": "tea"})
        trial.check()
        trial.put(prices, {"id": 1, "amount": 2**40, "name": None})
        trial.check()
        trial.put(prices, {"id": 1, "amount": "12.50", "name": "tea"})
        with pytest.raises(UndecodableRecord, match=r"topic shop\.public\.prices, partition 0, offset 2") as caught:
            trial.check()
        assert "amount" in caught.value.message
        assert trial.rows("listed") == [{"id": 1, "amount": 2**40, "name": None}]


def test_every_other_type_is_refused_at_its_record(small):
    values = ["12.50", 12.5, {"scale": 2, "value": "BOI="}, [1], True]
    found = Judge({}, small).faults(prices, records(small, prices, "amount", values))
    assert [fault.offset for fault in found] == list(range(len(values)))
    assert all("amount" in fault.error.message for fault in found)


COSTS = sa.Table(
    "costs", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("cost", sa.Numeric(12, 2))
)
costs = Table.from_changelog(COSTS, topic="shop.public.costs")


FITTING = ["1", "1.5", "-1.50", "1.5000", "1.50" + 20 * "0", "0E-10", "1E+3", "1.5E+1", "9999999999.99", "12E-2"]
ROUNDED = ["1.005", "0.001", "1E-3", "1.5E-30", "1." + 29 * "0" + "1"]


def test_a_decimal_of_another_scale_fits_unless_the_declared_scale_would_round_it(small):
    raw = records(small, costs, "cost", [*FITTING, *ROUNDED])
    found = Judge({}, small).faults(costs, raw)
    assert [fault.offset for fault in found] == list(range(len(FITTING), len(FITTING) + len(ROUNDED)))
    assert all("cost" in fault.error.message for fault in found)
    rows = Reduction({}).reduce(without(raw, found), costs).orderBy("id").collect()
    assert [row.cost for row in rows] == [Decimal(text) for text in FITTING]


@each_row("text", [*FITTING, *ROUNDED])
def test_python_refuses_the_same_decimals(text):
    read = reader_for(COSTS.c.cost)
    if text in FITTING:
        assert read(text) == Decimal(text)
    else:
        with pytest.raises(ValueError, match="2 digits"):
            read(text)


# ---- arrays of arrays are refused inside the JVM as they are in Python, and all that Python takes is taken


VALUES: list[list[Any]] = [[], [None], [None, None]]


def column(number: int, kind: Any, dimensions: int | None) -> sa.Column[Any]:
    return sa.Column(f"c{number}", sa.ARRAY(kind, dimensions=dimensions))


def taken(reader: Any, value: list[Any]) -> bool:
    try:
        return isinstance(reader(value), list)
    except (ValueError, LookupError):
        return False


@each_row("dimensions", [None, 1])
def test_spark_takes_the_arrays_that_python_takes(small, dimensions):
    columns = [column(number, kind, dimensions) for number, (kind, _) in enumerate(SENT)]
    model = sa.Table("it", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), *columns)
    types = key_and_columns(model, full_identity=True)[1]
    nested = [[[inner, inner]] if inner and dimensions is None else [] for _, inner in SENT]
    tried = [[*VALUES, *more] for more in nested]
    schema = FieldForm.fixed(Form("array", items=Form("string")))

    asked = [
        (one, value, form)
        for one, values in zip(columns, tried, strict=True)
        for value in values
        for form in (None, schema)
    ]
    found = small.range(1).select(
        *(
            typed(F.lit(json.dumps(v)), types[c.name], form).isNotNull().alias(str(n))
            for n, (c, v, form) in enumerate(asked)
        )
    )

    (row,) = found.collect()
    assert [(str(c.type), v, row[n]) for n, (c, v, _) in enumerate(asked)] == [
        (str(c.type), v, taken(reader_for(c), v)) for c, v, _ in asked
    ]


def test_an_array_of_a_view_topic_may_hold_nulls_alone(small):
    model = sa.Table("it", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), column(0, sa.Integer, None))
    types = key_and_columns(model, full_identity=True)[1]

    assert small.range(1).select(of_text(F.lit("[null,null]"), types["c0"])).first()[0] == "[null,null]"
