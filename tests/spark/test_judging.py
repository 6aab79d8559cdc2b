"""Records that are no rows: judged together as each alone is refused, and those of another source."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException

from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroEncoder
from eventstore.schema_registry import RegisteredSchema
from projections import Stream, Table, on
from projections.declaring.streams import EventVersions
from projections.errors import UndecodableRecord
from projections.logs.set_aside import SetAside
from projections.spark.failures import described
from projections.spark.judging import Judge, behind_gaps
from projections.spark.kinds import Reduction
from projections.spark.reading.records import without
from tests.integration.bad_records import BAD_EVENTS
from tests.integration.tickets import CUSTOMERS, DECLARED, REGIONS, Ticket
from tests.orders import Order
from tests.rows import each_row

RAW = "topic string, partition int, offset bigint, key binary, value binary, ce_time string"
EVENTS = {kind.schema_id: kind.registered for kind in Ticket.event_types.values()}
OPENED = event_type_of(Ticket.Opened(customer_id=1, hours=Decimal(1)))
GOOD_EVENT = OPENED.encode(Ticket.Opened(customer_id=1, hours=Decimal(1)))
CHANGE = {"op": "c", "after": {"id": 1, "name": "Ann", "region_id": 2, "note": "n", "since": "2013-02-03"},
          "source": {"lsn": 7, "ts_ms": 1}}  # fmt: skip
KEY = b'{"id": 1}'


def change(**parts):
    return json.dumps(CHANGE | parts).encode()


def after(**values):
    return change(after=CHANGE["after"] | values)


GOOD_CHANGES = [(KEY, change()), (KEY, None), (KEY, change(op="d", after=None)), (KEY, after(note=None)),
                (KEY, after(note="__debezium_unavailable_value")),
                (KEY, change(source={"snapshot": "true", "sequence": "[null,null]", "ts_ms": 1}))]  # fmt: skip
BAD_CHANGES = [(KEY, change()[:-9]), (KEY, b""), (KEY, b"[" * 10_000), (KEY, after(region_id="north")),
               (KEY, after(since="no day")), (KEY, change(op="x")), (KEY, change(source={"ts_ms": 1})),
               (KEY, change(factfold_epoch="second")), (b'{"id": "one"}', change()), (b"", change()),
               (None, change()), (KEY, change(op="m", after=None))]  # fmt: skip
GOOD_EVENTS = [(b"ticket-a@0", GOOD_EVENT), (b"ticket-b@0", None)]
BAD_KEYS = [
    (b"ticket-a", GOOD_EVENT),
    (b"", GOOD_EVENT),
    (b"ticket-a@x", GOOD_EVENT),
    (b"ticket-a@x", None),
    (b"\xff\x00@\xfe\x00", GOOD_EVENT),
    (b"x" * 100_000, GOOD_EVENT),
]
CONNECT = [
    RegisteredSchema.of({"type": "record", "name": "Key", "namespace": "r", "connect.name": "r.Key",
                         "fields": [{"name": "id", "type": "int"}]}),
    RegisteredSchema.of({"type": "record", "name": "Envelope", "namespace": "r", "connect.name": "r.Env", "fields": [
        {"name": "op", "type": "string"},
        {"name": "after", "default": None, "type": ["null", {"type": "record", "name": "Value", "fields": [
            {"name": "id", "type": "int"}, {"name": "title", "type": ["null", "string"]}]}]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}},
    ]}),
]  # fmt: skip
WRAPPED_KEY = b'{"schema": {"fields": [{"field": "id", "type": "int32"}]}, "payload": {"id": 1}}'
FRAMED_KEY = AvroEncoder(CONNECT[0]).encode({"id": 1})
FRAMED = AvroEncoder(CONNECT[1]).encode({"op": "c", "after": {"id": 1, "title": "x"}, "source": {"lsn": 7}})
EVENT_FAULTS = [*((b"ticket-x@0", value) for value in BAD_EVENTS.values()), *BAD_KEYS]
TABLES = {
    "changelog": (Table.from_changelog(CUSTOMERS, topic="t"), {}, GOOD_CHANGES, BAD_CHANGES),
    "versions": (
        Table.versions_of(CUSTOMERS, topic="t"), {}, GOOD_CHANGES, [*BAD_CHANGES, (KEY, change(source={"lsn": 7}))]
    ),
    "with schemas": (
        Table.from_changelog(REGIONS, topic="t", encoding="json-with-schemas"), {}, [(WRAPPED_KEY, None)],
        [(KEY, None), (WRAPPED_KEY, change()), (WRAPPED_KEY, b"[")],
    ),
    "Avro": (
        Table.from_changelog(REGIONS, topic="t", encoding="avro", null_if_absent=["rate", "opened"]),
        {s.id: s for s in CONNECT},
        [(FRAMED_KEY, FRAMED), (FRAMED_KEY, None)],
        [(FRAMED_KEY, b"{}"), (FRAMED_KEY, b""), (b"{}", FRAMED), (FRAMED_KEY, GOOD_EVENT), (FRAMED_KEY, FRAMED[:9]),
         (FRAMED_KEY, FRAMED_KEY), (None, FRAMED)],
    ),
    "declared": (
        Table.from_events(Ticket, key="ticket_id", columns=DECLARED, topic="t"), EVENTS, GOOD_EVENTS, EVENT_FAULTS,
    ),
    "folded versions": (
        EventVersions.of(Table.from_events(Ticket, key="ticket_id", columns=DECLARED, topic="t")), EVENTS, GOOD_EVENTS,
        EVENT_FAULTS,
    ),
    "facts": (
        Stream.from_events(Ticket, events=[Ticket.Opened], key="ticket_id", topic="t"), EVENTS, GOOD_EVENTS,
        EVENT_FAULTS,
    ),
    "evolved": (
        Table.from_events(Ticket, key="ticket_id", topic="t"), EVENTS, GOOD_EVENTS, EVENT_FAULTS,
    ),
}  # fmt: skip


def frame(spark, records, *, time="2013-02-03T04:05:06Z"):
    plain = [[None if part is None else bytearray(part) for part in record] for record in records]
    return spark.createDataFrame([("t", 0, n, *record, time) for n, record in enumerate(plain)], RAW).coalesce(1)


# A query a record takes time: the rules of the others are those of these.
ONE_OF_EACH = ("changelog", "Avro", "declared")


def one_of_each(found, records):
    return list({fault.kind: records[fault.offset] for fault in found}.values())


def is_refused(spark, table, reduction, record):
    try:
        with described("a test"):
            reduction.reduce(frame(spark, [record]), table).collect()
    except UndecodableRecord:
        return True
    except PySparkException as error:
        raise AssertionError(f"{record} fails without a place") from error
    return False


def judged(spark, table, registry, raw):
    """Every round's findings, as a run asks for them."""
    judge, found = Judge(registry, spark), SetAside.nothing()
    while new := judge.faults(table, without(raw, found) if found else raw):
        found |= new
    return found


@each_row("kind", TABLES)
def test_judged_bad_is_exactly_what_the_strict_decoder_refuses(small, kind):
    table, registry, good, bad = TABLES[kind]
    records = [record for pair in zip(good * len(bad), bad, strict=False) for record in pair]
    found = judged(small, table, registry, raw := frame(small, records))
    assert {fault.offset for fault in found} == set(range(1, 2 * len(bad), 2))
    assert all(len(fault.error.message) < 400 and "\0" not in fault.error.message for fault in found)
    strict = Reduction(registry)
    strict.reduce(without(raw, found), table).collect()
    alone = one_of_each(found, records) if kind in ONE_OF_EACH else bad[:1]
    assert [record for record in alone if not is_refused(small, table, strict, record)] == []


def test_a_table_that_was_emptied_is_never_set_aside(small):
    table, emptied = TABLES["changelog"][0], (None, change(op="t", after=None))
    assert not judged(small, table, {}, frame(small, [emptied]))
    with pytest.raises(UndecodableRecord, match="TRUNCATE"), described("a test"):
        Reduction({}).reduce(frame(small, [emptied]), table).collect()


def test_an_event_without_a_time_is_bad_for_a_stream(small):
    stream = Stream.from_events(Ticket, events=Ticket.Opened, key="ticket_id", topic="t")
    raw = frame(small, GOOD_EVENTS).union(frame(small, [(b"ticket-c@0", GOOD_EVENT)], time=None))
    found = judged(small, stream, EVENTS, raw.where("NOT (key = CAST('ticket-a@0' AS binary))"))
    assert [(fault.offset, fault.kind) for fault in found] == [(0, "no_time")]


def test_records_behind_a_gap_are_those_after_the_first_version_that_is_missing(small):
    versions = {"a": [3, 4, 4, 6, 7], "b": [0, 1], "c": [2], "d": [1, 2, 3]}
    records = [(f"ticket-{s}@{v}".encode(), GOOD_EVENT) for s, found in versions.items() for v in found]
    known = small.createDataFrame([("ticket-a", 2), ("ticket-b", -1), ("ticket-c", -1), ("ticket-d", 1)],
                                  "stream string, at bigint")  # fmt: skip
    found = behind_gaps(frame(small, records), known).select("offset", "_fault.detail").collect()
    assert sorted(row.detail for row in found) == ["ticket-a@6", "ticket-a@7", "ticket-c@2"]


# ---- two services have an aggregate of one name


KIND = event_type_of(Order.Placed)
ORDER_SCHEMAS = {KIND.schema_id: KIND.registered}
PLACED = KIND.encode(Order.Placed(sku="tea"))
SOURCED = (
    "topic string, partition int, offset bigint, key binary, value binary, ce_time string, ce_id string, "
    "ce_source string"
)
# Key, value and source of a record, and what its message says of it if it is refused.
ORDER_RECORDS = [
    ("order-1@0", PLACED, "/shop", None),
    ("order-2@0", None, "/shop", None),
    ("order-3@0", PLACED, "/billing", "the record's source is '/billing'"),
    ("order-4@0", None, "/billing", "the record's source is '/billing'"),
    ("order-5@0", PLACED, None, "the record's source is none"),
    ("order-6@0", PLACED, "/Shop", "the record's source is '/Shop'"),
    ("order-7@0", b"not Avro", "/billing", "the record's source is '/billing'"),
]
OF_OTHERS = {n: told for n, (*_, told) in enumerate(ORDER_RECORDS) if told}


def tables(**named):
    return {
        "declared": Table.from_events(Order, key="order_id", columns={"sku": on(Order.Placed).take("sku")}, **named),
        "evolved": Table.from_events(Order, key="order_id", **named),
        "a stream": Stream.from_events(Order, events=Order.Placed, key="order_id", **named),
    }


NAMED = tables(source="/shop")


def order_frame(small, records=ORDER_RECORDS):
    rows = [
        ("shop.order", 0, n, key.encode(), value and bytearray(value), "2026-01-01T00:00:00Z", None, source)
        for n, (key, value, source, _) in enumerate(records)
    ]
    return small.createDataFrame(rows, SOURCED).coalesce(1)


@each_row("table", NAMED.values(), ids=NAMED)
def test_records_of_another_source_are_judged_bad_deletions_included(small, table):
    found = Judge(ORDER_SCHEMAS, small).faults(table, order_frame(small))
    assert {fault.offset: fault.kind for fault in found} == dict.fromkeys(OF_OTHERS, "other_source")
    for fault in found:
        assert fault.error.message == (
            f"the record is of another service: '/shop' is declared, and {OF_OTHERS[fault.offset]}"
        )
        assert fault.error.place == f"topic shop.order, partition 0, offset {fault.offset}"
        assert "topic=" in fault.error.remedy


@each_row("table", NAMED.values(), ids=NAMED)
def test_a_fold_stops_at_a_record_of_another_source_and_takes_those_of_its_own(small, table):
    own = [record for record in ORDER_RECORDS if record[3] is None]
    assert Reduction(ORDER_SCHEMAS).reduce(order_frame(small, own), table).count() == 2
    for record in (ORDER_RECORDS[2], ORDER_RECORDS[3]):
        with pytest.raises(UndecodableRecord, match="is of another service"), described("a test"):
            Reduction(ORDER_SCHEMAS).reduce(order_frame(small, [record]), table).collect()


def test_a_table_that_names_no_source_takes_the_records_of_all(small):
    taken = [record for record in ORDER_RECORDS if record[1] != b"not Avro"]
    for table in tables().values():
        assert not Judge(ORDER_SCHEMAS, small).faults(table, order_frame(small, taken))
