"""Values of events: read in Python as in the JVM, and under names of our own."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Column, MetaData, Text
from sqlalchemy import Table as SqlTable

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import Stream, Table, on
from projections.declaring.streams import EventVersions
from projections.errors import UndecodableRecord
from projections.spark.events import decode
from projections.spark.events.decode import Decoder
from projections.spark.events.plain_values import plain_values
from projections.spark.failures import AT, FAULT, described
from projections.spark.judging import Judge
from projections.spark.kinds import Reduction
from tests.rows import each_row


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


@dataclass(frozen=True)
class Part:
    name: str
    weights: list[Decimal]
    serial: uuid.UUID | None


@dataclass(frozen=True)
class Cash:
    note: int


@dataclass(frozen=True)
class Card:
    note: int
    serial: uuid.UUID


class Parcel(Aggregate):
    @event
    class Packed:
        text: str
        number: int
        share: float
        flag: bool
        raw: bytes
        money: Decimal
        at: dt.datetime
        day: dt.date
        serial: uuid.UUID
        size: Size
        maybe: uuid.UUID | None
        first: Part
        parts: list[Part]
        labels: dict[str, int]
        serials: dict[str, uuid.UUID]
        either: int | str
        worth: Decimal | bool | None
        paid: Cash | Card | float | None
        others: list[Card | dt.date]

    @event
    class Sent:
        pass


PART = Part("axle", [Decimal("1.5"), Decimal("-0.0001")], uuid.UUID(int=5))
PACKED = Parcel.Packed(
    text="ü", number=-(2**63), share=0.1, flag=True, raw=b"\x00\xff", money=Decimal("12.5"),
    at=dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC), day=dt.date(2024, 2, 29), serial=uuid.UUID(int=1), size=Size.LARGE,
    maybe=None, first=PART, parts=[PART, Part("bolt", [], None)], labels={"a": 1}, serials={"b": uuid.UUID(int=2)},
    either="three", worth=Decimal("2.5"), paid=Card(1, uuid.UUID(int=6)),
    others=[Card(2, uuid.UUID(int=7)), dt.date(2024, 3, 1)],
)  # fmt: skip
REGISTRY = {kind.schema_id: kind.registered for kind in Parcel.event_types.values()}
OTHERS = [
    replace(PACKED, either=3, worth=None, paid=None, others=[]),
    replace(PACKED, worth=True, paid=Cash(5)),
    replace(PACKED, paid=1.5),
]
GOOD = event_type_of(PACKED).encode(PACKED)
SENT = event_type_of(Parcel.Sent).encode(Parcel.Sent())
ALL = [GOOD, SENT, *(event_type_of(other).encode(other) for other in OTHERS)]


def raw(small, *values):
    """Records with these values."""
    return small.createDataFrame(
        [("t", 0, n, bytearray(b"parcel-1@%d" % n), None if v is None else bytearray(v)) for n, v in enumerate(values)],
        "topic string, partition int, offset bigint, key binary, value binary",
    )


def decoded(records):
    return Decoder.of(Parcel.event_types.values(), REGISTRY).prepare()(records)


def columns(small, *values):
    """The decoded columns of records with these values."""
    return decoded(raw(small, *values))


def test_values_of_every_field_type_are_those_of_the_jvm(small, monkeypatch):
    assert decode.avro_in_the_jvm()
    in_the_jvm = columns(small, *ALL)
    monkeypatch.setattr(decode, "avro_in_the_jvm", lambda: False)
    in_python = columns(small, *ALL)
    # Whether a column may be null is all that differs.
    assert in_python.dtypes == in_the_jvm.dtypes
    assert in_python.collect() == in_the_jvm.collect()
    assert in_python.first()[f"_event_{event_type_of(PACKED).schema_id}"]["parts"][1]["name"] == "bolt"


@each_row(
    ("value", "words"),
    [
        (GOOD[:9], "does not fit its schema"),
        (b"json", "not Avro"),
        (b"\x00\x00\x00\x00\x09x", "(9)"),
    ],
)
def test_records_are_refused_alike(small, monkeypatch, value, words):
    told = []
    for present in (True, False):
        monkeypatch.setattr(decode, "avro_in_the_jvm", lambda there=present: there)
        records = raw(small, GOOD, value)
        with pytest.raises(UndecodableRecord) as refused, described("here"):
            Reduction(REGISTRY).reduce(records, Table.from_events(Parcel, key="parcel_id", topic="t")).collect()
        told.append((str(refused.value), [(row[AT]["offset"], row[FAULT]) for row in decoded(records).collect()]))
    assert told[0] == told[1]
    error, faults = told[0]
    assert words in error
    assert "offset 1" in error
    assert [offset for offset, fault in faults if fault] == [1]


def test_an_event_comes_out_of_spark_as_it_went_in(small):
    packed = event_type_of(PACKED)
    rows = (
        columns(small, GOOD, *ALL[2:])
        .toArrow()
        .column(f"_event_{packed.schema_id}")
        .to_pylist(maps_as_pydicts="strict")
    )
    plain = plain_values(packed.registered)
    assert plain is not None
    assert [packed.from_plain(plain(row)) for row in rows] == [PACKED, *OTHERS]


# ---- a table may have columns with the names of what records and folds are made of


NAMES = (
    "topic", "partition", "offset", "key", "value", "headers", "timestamp", "ce_time", "ce_id", "k", "v", "row", "last",
    "first", "again", "latest", "deletion", "tombstone", "replaced", "version", "kind", "detail", "at", "life",
)  # fmt: skip
KEYS = ("topic", "partition", "offset", "k", "v", "row", "last", "again", "latest", "deletion", "tombstone", "replaced")
RAW = "topic string, partition int, offset bigint, key binary, value binary, ce_time string, ce_id string"


class Thing(Aggregate):
    @event
    class Made:
        topic: str
        partition: str
        offset: str
        key: str
        value: str
        k: str
        v: str
        row: str
        last: str
        version: str

    def evolve(self, happened: object) -> None: ...


FIELDS = Thing.Made.__annotations__
MADE = Thing.Made(**dict.fromkeys(FIELDS, "x"))
SETS = {name: on(Thing.Made).take(name) for name in FIELDS}


MODEL = SqlTable("things", MetaData(), *(Column(name, Text, primary_key=name in KEYS) for name in NAMES))


KEY = json.dumps(dict.fromkeys(KEYS, "x")).encode()
ROW = {"op": "c", "after": dict.fromkeys(NAMES, "x"), "source": {"lsn": 7, "snapshot": "false", "ts_us": 1}}
CHANGE = KEY, json.dumps(ROW).encode()
OF_VIEW = KEY, json.dumps(dict.fromkeys(set(NAMES) - set(KEYS), "x")).encode()
OF_EVENT = b"thing-1@0", event_type_of(MADE).encode(MADE)

FOLDED = Table.from_events(Thing, key="id", columns=SETS)
TABLES: dict[str, tuple[Any, tuple[bytes, bytes]]] = {
    "folded": (FOLDED, OF_EVENT),
    "versions of folded": (EventVersions.of(FOLDED), OF_EVENT),
    "stream": (Stream.from_events(Thing, events=Thing.Made, key="id"), OF_EVENT),
    "changelog": (Table.from_changelog(MODEL, topic="t"), CHANGE),
    "versions": (Table.versions_of(MODEL, topic="t"), CHANGE),
    "view": (Table.from_view_topic(MODEL, topic="t"), OF_VIEW),
}


def test_columns_may_have_the_names_of_records_and_folds(small):
    registry = {kind.schema_id: kind.registered for kind in Thing.event_types.values()}
    wrong = {}
    for name, (table, (key, value)) in TABLES.items():
        row = ("t", 0, 5, bytearray(key), bytearray(value), "2026-11-28T12:00:00Z", "0" * 32)
        raw = small.createDataFrame([row], RAW)
        try:
            (found,) = Reduction(registry).reduce(raw, table).collect()
            faults = len(Judge(registry, small).faults(table, raw))
        except Exception as error:
            wrong[name] = str(error)[:200]
        else:
            values = {found[c] for c in table.columns if c not in ("id", "event_time")}
            if values != {"x"} or faults or found["_offset"] != 5:
                wrong[name] = found, faults
    assert wrong == {}


def test_a_record_without_one_of_them_has_a_fault_with_its_place(small):
    table, (key, value) = TABLES["changelog"]
    lacking = json.loads(value)
    del lacking["after"]["version"]
    row = ("t", 0, 5, bytearray(key), bytearray(json.dumps(lacking).encode()), None, None)
    (fault,) = Judge({}, small).faults(table, small.createDataFrame([row], RAW))
    assert (fault.partition, fault.offset, fault.kind, fault.detail) == (0, 5, "column_absent", "version")
