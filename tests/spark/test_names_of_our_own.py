"""A table may have columns with the names of what records and folds are made of."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Column, MetaData, Text
from sqlalchemy import Table as SqlTable

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import Stream, Table, on
from projections.declaring.event_versions import EventVersions
from projections.spark.judging import Judge
from projections.spark.kinds import Reduction

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
