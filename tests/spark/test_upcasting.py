"""Folds of events of older versions, and of unions, equal folds in plain Python."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from pyspark.sql import functions as F

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from eventstore.fields.conversions import cast_plain
from eventstore.fields.upcasting import Cast
from eventstore.topics import DEAD_LETTER_PREFIX, TopicRecord
from projections import Stream, Table, branches, field, on
from projections.errors import InvalidDefinition
from projections.spark.events import decode
from projections.spark.events.upcasting import _cast, literal
from projections.spark.kinds import Reduction
from projections.spark.routing import Routing
from tests.reference import fold_table, route
from tests.rows import each_row
from tests.shipments import ORDERED_SECOND, ORDERED_TODAY, REGISTRY, First, Shipment, framed, ordered_first

RAW = "topic string, partition int, offset bigint, key string, value binary"
ORDERED = on(Shipment.Ordered)
DECLARED = Table.from_events(
    Shipment,
    key="shipment_id",
    columns={
        "customer_id": ORDERED.take("customer_id"),
        "currency": ORDERED.take("currency"),
        "priority": ORDERED.take("priority"),
        "ordered": ORDERED.take("at"),
        "amount": [ORDERED.take("amount"), on(Shipment.Paid).take("amount")],
        # Both halves of a split event set it: the last one decides, and they have one version.
        "last": [on(Shipment.Paid).set("paid"), on(Shipment.Sent).take("carrier")],
        "why": on(Shipment.Lost).take("why"),
    },
)
EVOLVED = Table.from_events(Shipment, key="shipment_id")
STREAMS = [
    [ordered_first(), First.PaidAndSent(amount=31, carrier="sea")],
    [ORDERED_SECOND, First.PaidAndSent(amount=0, carrier="")],
    [ORDERED_TODAY, First.Gone(), Shipment.Lost(why="storm")],
    [First.PaidAndSent(amount=5, carrier="")],
]
HAPPENED = [(f"shipment-{n}@{v}", happened) for n, stream in enumerate(STREAMS) for v, happened in enumerate(stream)]
RECORDS = [(number, key, framed(happened)) for number, (key, happened) in enumerate(HAPPENED)]


def raw_frame(session, records):
    rows = [("shipment", 0, offset, key, bytearray(value)) for offset, key, value in records]
    return session.createDataFrame(rows, RAW).coalesce(1)


def rows_of(frame, table):
    found = frame.select(*table.columns).toArrow().to_pylist()
    return {row[table.key[0]]: {c: row[c] for c in table.payload} for row in found}


@each_row("table", [DECLARED, EVOLVED], ids=["declared columns", "Python evolve"])
def test_a_fold_reads_every_version_as_plain_python_does(small, decoded, table):
    twice = [*RECORDS, *RECORDS[:3]]
    frame = Reduction(REGISTRY).reduce(raw_frame(small, twice), table)
    versions = {row.shipment_id: row[1:] for row in frame.select("shipment_id", "_first", "_pos").collect()}
    assert rows_of(frame, table) == fold_table(table, twice, REGISTRY)
    assert versions == {str(n): (0, len(stream) - 1) for n, stream in enumerate(STREAMS)}


def test_a_stream_has_the_events_of_today(small, decoded):
    sent = Stream.from_events(Shipment, events=Shipment.Sent, key="shipment_id")
    found = Reduction(REGISTRY).reduce(
        raw_frame(small, RECORDS[:2]).selectExpr("*", "'2026-01-01T00:00:00Z' AS ce_time"), sent
    )
    assert [(row.shipment_id, row.carrier, row["_pos"]) for row in found.collect()] == [("0", "sea", 1)]


def test_two_halves_of_one_event_are_not_two_rows_of_a_stream(small):
    both = Stream.from_events(Shipment, events=[Shipment.Paid, Shipment.Sent], key="change_id", id="shipment_id")
    raw = raw_frame(small, RECORDS[:2]).selectExpr("*", "'2026-01-01T00:00:00Z' AS ce_time")
    with pytest.raises(Exception, match="second_event"):
        Reduction(REGISTRY).reduce(raw, both).collect()


def test_a_value_that_cannot_be_cast_fails_the_fold_with_its_place(small, decoded):
    records = [*RECORDS, (99, "shipment-9@0", framed(ordered_first("Ada")))]
    for table in (DECLARED, EVOLVED):
        with pytest.raises(
            Exception, match=r"shipment\.ordered: a value does not fit its new type|'Ada' does not look"
        ):
            Reduction(REGISTRY).reduce(raw_frame(small, records), table).collect()


def test_a_newer_event_fails_the_fold(small):
    class Older(Aggregate, category="shipment"):
        @event
        class Ordered:
            customer: str = ""

    table = Table.from_events(Older, key="shipment_id", columns={"customer": on(Older.Ordered).take("customer")})
    with pytest.raises(Exception, match="stored in version 2, and the newest that this code knows is 1"):
        Reduction(REGISTRY).reduce(raw_frame(small, [(0, "shipment-1@0", framed(ORDERED_SECOND))]), table).collect()


class Order(Aggregate, category="shipment"):
    """The shipment without the event that only a function can upcast."""

    Ordered = Shipment.Ordered
    Lost = Shipment.Lost


ROUTES = branches(
    Order,
    {
        "known": field("customer_id") == 7,
        "dear": field("amount") > 45,
        "lost": field("why") == "nobody knows",
        "usual": (field("priority") == 3) & (field("currency") == "EUR"),
    },
    otherwise="rest",
)


HEADED = RAW.replace("key string", "key binary") + ", headers array<struct<key:string,value:binary>>"


def test_branches_see_the_fields_of_today(small):
    first = [ordered_first(), ordered_first("8", 46), ordered_first("x")]
    values = [framed(one) for one in (*first, ORDERED_SECOND, ORDERED_TODAY, First.Gone())]
    rows = [("shipment", 0, n, bytearray(b"k@0"), bytearray(value), None) for n, value in enumerate(values)]
    routed = Routing(ROUTES, REGISTRY).routed(small.createDataFrame(rows, HEADED).coalesce(1)).collect()
    records = [TopicRecord("shipment", 0, n, b"k@0", value, (), 0) for n, value in enumerate(values)]
    expected = route(ROUTES, records, REGISTRY)
    assert [row.topic for row in routed] == [topic for _, topic, _ in expected]
    names = [row.topic.rpartition(".")[2] for row in routed]
    assert names == ["known", "dear", "dead-letter", "usual", "dear", "lost"]
    letter = {header.key: bytes(header.value).decode() for header in routed[2].headers}
    assert letter[f"{DEAD_LETTER_PREFIX}error"] == expected[2][2] == "InvalidEventData"


def test_an_aggregate_whose_events_a_function_upcasts_is_not_branched():
    with pytest.raises(InvalidDefinition, match=r"a function upcasts shipment\.paid_and_sent"):
        branches(Shipment, {"known": field("customer_id") == 7}, otherwise="rest")


def avro(hint):
    @event(name="cast.made", upcasters={1: [Cast("x", hint)]})
    class Made:
        x: hint

    return event_type_of(Made).schema["fields"][0]["type"]


DECIMAL, NARROW, LONG, DOUBLE, TEXT = (
    avro(Decimal),
    {**avro(Decimal), "precision": 4, "scale": 1},
    "long",
    "double",
    "string",
)
WIDE = {**avro(Decimal), "precision": 38, "scale": 10}
WIDER = {**avro(Decimal), "precision": 38, "scale": 0}
FRACTION = {**avro(Decimal), "precision": 38, "scale": 38}
PRECISE = Decimal("1234567890123456789012345678.0123456789")
MOST = Decimal("9999999999999999999999999999.9999999999")
ENUM = {"type": "string", "enum": {"RED": "red", "BLUE": "blue"}}
FEWER = {"type": "string", "enum": {"RED": "red"}}
CASTS = [
    ("boolean", LONG, [True, False, None]),
    (LONG, DOUBLE, [3, 2**53, -(2**53), 2**53 + 2, 2**62, 2**63 - 1024, -(2**63), None]),
    (LONG, DOUBLE, [2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, 2**63 - 512, 1 - 2**63]),
    (LONG, DECIMAL, [3, -(2**63), 10**14 - 1, 10**14, None]),
    (LONG, TEXT, [3, -(2**63), None]),
    (DECIMAL, TEXT, [Decimal("0.0000"), Decimal("0.0001"), Decimal("-12.5000"), None]),
    (DECIMAL, NARROW, [Decimal("12.5000"), Decimal("12.5500"), Decimal("999.9"), Decimal(1000), None]),
    (avro(dt.date), avro(dt.datetime), [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31), None]),
    (TEXT, LONG, ["7", "+007", "-7", "", " 7", "7\n", "٣", "1.0", str(2**63), str(-(2**63)), "0" * 50, None]),
    (TEXT, DECIMAL, ["1", "-1.5", "1.50000", "1.00005", "1.", ".5", "1e3", "9" * 15, "9" * 14, "0.1\n", None]),
    (LONG, WIDE, [2**63 - 1, -(2**63), None]),
    (LONG, FRACTION, [0, 1]),
    (DECIMAL, WIDE, [Decimal("99999999999999.9999"), Decimal("-0.0001"), None]),
    (WIDE, WIDER, [PRECISE, Decimal("0.0000000001"), MOST, MOST.copy_negate(), None]),
    (WIDER, WIDE, [Decimal(10**28) - 1, Decimal(10**28), Decimal("1234567890123456789012345678"), None]),
    (WIDE, DECIMAL, [Decimal("12.3456"), Decimal("12.34561"), Decimal("1234567890123456789012345678"), None]),
    (WIDE, TEXT, [Decimal("0.0000000000"), Decimal("0.0000000001"), PRECISE, MOST.copy_negate(), None]),
    (TEXT, WIDE, ["1234567890123456789012345678.0123456789", "0.00000000010", "0.00000000001", "1" * 29, "0" * 60]),
    (TEXT, WIDER, ["9" * 38, "-" + "9" * 38, "9" * 39, "1." + "0" * 50, "0.1"]),
    (TEXT, LONG, ["0" * 5000 + "7", "-" + "0" * 5000 + "7", "9" * 5000]),
    (TEXT, ENUM, ["red", "blue", "RED", "green", "", "red ", None]),
    (ENUM, TEXT, ["red", None]),
    (ENUM, FEWER, ["red", "blue", None]),
    (TEXT, avro(dt.date), ["2024-02-29", "2024-02-30", "2023-02-29", "0000-01-01", "24-2-9", "2024-02-29\n", None]),
]  # fmt: skip
SPARK = {"boolean": "boolean", LONG: "bigint", TEXT: "string", str(DECIMAL): "decimal(18,4)",
         str(WIDE): "decimal(38,10)", str(WIDER): "decimal(38,0)", str(ENUM): "string"}  # fmt: skip


def test_every_cast_says_in_spark_what_it_says_in_python(small):
    """A column for each cast: one job says them all."""
    rows = [(n, *row) for n, row in enumerate(itertools.zip_longest(*(values for *_, values in CASTS)))]
    kinds = [f"x{n} {SPARK.get(str(source), 'date')}" for n, (source, *_) in enumerate(CASTS)]
    frame = small.createDataFrame(rows, f"n int, {', '.join(kinds)}").coalesce(1).orderBy("n")
    casts = (_cast(F.col(f"x{n}"), source, target).alias(f"y{n}") for n, (source, target, _) in enumerate(CASTS))
    found = frame.select(*casts).toArrow().to_pydict()
    told = {n: found[f"y{n}"][: len(values)] for n, (*_, values) in enumerate(CASTS)}
    assert told == {n: [_in_python(value, target) for value in values] for n, (_, target, values) in enumerate(CASTS)}


def _in_python(value, target):
    try:
        return cast_plain(value, target)
    except ValueError:
        return None


# ---- unions and maps have in Spark the values of Python, whatever order the union's types had when they were written


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Card:
    """Of the same fields as a voucher: the name alone says which one it is."""

    number: int
    serial: UUID | None = None


@dataclass(frozen=True)
class Voucher:
    number: int
    serial: UUID | None = None


class Before(Aggregate, category="till"):
    @event
    class Rung:
        either: Colour | int
        paid: Card | Voucher | bool
        several: list[int | UUID | None]
        coins: dict[str, int | None]
        serial: UUID = UUID(int=3)


def told(old):
    return {**old, "seen": repr(old["serial"])}


class Till(Aggregate):
    text: str = ""

    @event(upcasters={1: [told]})
    class Rung:
        either: float | int | Colour
        paid: bool | Voucher | Card
        several: list[UUID | int | None]
        coins: dict[str, int | None]
        seen: str
        late: bool | int = True

    def on_rung(self, e: Rung) -> None:
        self.text += f"{replace(e, coins=dict(sorted(e.coins.items())))!r};"


EVENTS = [
    Before.Rung(either=Colour.RED, paid=Card(1), several=[1, None, UUID(int=1)], coins={"two": 2, "one": None}),
    Before.Rung(either=2**53 + 1, paid=Voucher(1, UUID(int=9)), several=[], coins={}),
    Before.Rung(either=0, paid=True, several=[None], coins={}),
    Till.Rung(either=1.0, paid=False, several=[UUID(int=5), 5], coins={"one": 1}, seen="now"),
]
TILL_SCHEMAS = {event_type_of(e).schema_id: event_type_of(e).registered for e in EVENTS}
TILL_RECORDS = [(n, f"till-1@{n}", event_type_of(e).encode(e)) for n, e in enumerate(EVENTS)]


@each_row("jar", [True, False], ids=["in the JVM", "in Python"])
def test_an_evolve_gets_every_value_as_itself(small, monkeypatch, jar):
    monkeypatch.setattr(decode, "avro_in_the_jvm", lambda: jar)
    table = Table.from_events(Till, key="till_id")
    found = rows_of(Reduction(TILL_SCHEMAS).reduce(raw_frame(small, TILL_RECORDS), table), table)
    assert found == fold_table(table, TILL_RECORDS, TILL_SCHEMAS)
    assert found["1"]["text"].count("UUID('00000000-0000-0000-0000-000000000003')") == 3
    assert "coins={'one': None, 'two': 2}" in found["1"]["text"]
    assert "either=9007199254740993, paid=Voucher(number=1, serial=UUID(" in found["1"]["text"]


def test_a_default_is_of_the_type_of_its_class(small):
    flag, number = literal(True, ["long", "boolean"]), literal(1, ["boolean", "long"])
    row = small.range(1).select(flag.alias("x"), number.alias("y")).first().asDict(recursive=True)
    assert row == {"x": {"member0": None, "member1": True}, "y": {"member0": None, "member1": 1}}
