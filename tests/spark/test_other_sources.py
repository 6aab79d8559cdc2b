"""Two services have an aggregate of one name: a table that names its service refuses the other one's records."""

from __future__ import annotations

import pytest

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import Stream, Table, on
from projections.errors import UndecodableRecord
from projections.spark.failures import described
from projections.spark.judging import Judge
from projections.spark.kinds import Reduction
from tests.rows import each_row


class Order(Aggregate):
    sku: str = ""

    @event
    class Placed:
        sku: str

    def on_placed(self, e: Placed) -> None:
        self.sku = e.sku


KIND = event_type_of(Order.Placed)
REGISTRY = {KIND.schema_id: KIND.registered}
PLACED = KIND.encode(Order.Placed(sku="tea"))
RAW = (
    "topic string, partition int, offset bigint, key binary, value binary, ce_time string, ce_id string, "
    "ce_source string"
)
# Key, value and source of a record, and what its message says of it if it is refused.
RECORDS = [
    ("order-1@0", PLACED, "/shop", None),
    ("order-2@0", None, "/shop", None),
    ("order-3@0", PLACED, "/billing", "the record's source is '/billing'"),
    ("order-4@0", None, "/billing", "the record's source is '/billing'"),
    ("order-5@0", PLACED, None, "the record's source is none"),
    ("order-6@0", PLACED, "/Shop", "the record's source is '/Shop'"),
    ("order-7@0", b"not Avro", "/billing", "the record's source is '/billing'"),
]
REFUSED = {n: told for n, (*_, told) in enumerate(RECORDS) if told}


def tables(**named):
    return {
        "declared": Table.from_events(Order, key="order_id", columns={"sku": on(Order.Placed).take("sku")}, **named),
        "evolved": Table.from_events(Order, key="order_id", **named),
        "a stream": Stream.from_events(Order, events=Order.Placed, key="order_id", **named),
    }


NAMED = tables(source="/shop")


def frame(small, records=RECORDS):
    rows = [
        ("shop.order", 0, n, key.encode(), value and bytearray(value), "2026-01-01T00:00:00Z", None, source)
        for n, (key, value, source, _) in enumerate(records)
    ]
    return small.createDataFrame(rows, RAW).coalesce(1)


@each_row("table", NAMED.values(), ids=NAMED)
def test_records_of_another_source_are_judged_bad_deletions_included(small, table):
    found = Judge(REGISTRY, small).faults(table, frame(small))
    assert {fault.offset: fault.kind for fault in found} == dict.fromkeys(REFUSED, "other_source")
    for fault in found:
        assert fault.error.message == (
            f"the record is of another service: '/shop' is declared, and {REFUSED[fault.offset]}"
        )
        assert fault.error.place == f"topic shop.order, partition 0, offset {fault.offset}"
        assert "topic=" in fault.error.remedy


@each_row("table", NAMED.values(), ids=NAMED)
def test_a_fold_stops_at_a_record_of_another_source_and_takes_those_of_its_own(small, table):
    own = [record for record in RECORDS if record[3] is None]
    assert Reduction(REGISTRY).reduce(frame(small, own), table).count() == 2
    for record in (RECORDS[2], RECORDS[3]):
        with pytest.raises(UndecodableRecord, match="is of another service"), described("a test"):
            Reduction(REGISTRY).reduce(frame(small, [record]), table).collect()


def test_a_table_that_names_no_source_takes_the_records_of_all(small):
    taken = [record for record in RECORDS if record[1] != b"not Avro"]
    for table in tables().values():
        assert not Judge(REGISTRY, small).faults(table, frame(small, taken))
