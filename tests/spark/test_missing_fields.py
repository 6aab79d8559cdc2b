"""Spark's decoder and Python's refuse the same events that lack a required field, and fold none of them to null."""

from __future__ import annotations

from eventstore import Aggregate, event
from eventstore.errors import InvalidEventData
from eventstore.event_types import EventType, event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.fields.upcasting import Default, Rename, Retype
from projections import Stream, Table, branches, field, on
from projections.logs.set_aside import SetAside
from projections.spark.judging import Judge
from projections.spark.routing import Routing
from tests.rows import each_row


class Parcel(Aggregate):
    carrier: str = ""
    weight: int = 0

    @event(upcasters={1: [Rename("by", to="carrier"), Default("priority", 1)]})
    class Sent:
        carrier: str
        weight: int
        priority: int
        note: str = ""

    @event(upcasters={1: [Retype("parcel.dropped")]})
    class Lost:
        where: str

    def on_sent(self, e: Sent) -> None:
        self.carrier, self.weight = e.carrier, e.weight

    def on_lost(self, e: Lost) -> None:
        self.carrier = e.where


def written(name: str, /, **values: object) -> object:
    """An event of another service: the same type name, and fields of its own."""
    annotations = {key: type(value) for key, value in values.items()}
    upcasters = {1: []} if name.endswith("@2") else {}
    made = type("Written", (), {"__annotations__": annotations})
    return event(name=name.removesuffix("@2"), upcasters=upcasters)(made)(**values)


GOOD = {
    "as of today": Parcel.Sent(carrier="a", weight=1, priority=2, note="n"),
    "a default for what is new": written("parcel.sent@2", carrier="b", weight=2, priority=1),
    "what an upcaster gives": written("parcel.sent", by="c", weight=3),
    "under a former name": written("parcel.dropped", where="sea"),
}
LACKING = {
    "one field": (written("parcel.sent@2", carrier="d", priority=1), "weight"),
    "another field beside one of a like name": (written("parcel.sent@2", carrier="e", weigth=5, priority=1), "weight"),
    "what a rename would take": (written("parcel.sent", sender="f", weight=6), "carrier"),
    "the only field under a former name": (written("parcel.dropped", place="sea"), "where"),
    "every field": (written("parcel.sent@2"), "carrier"),
}
EVENTS = [*GOOD.values(), *(happened for happened, _ in LACKING.values())]
KINDS: list[EventType] = [*Parcel.event_types.values(), *map(event_type_of, EVENTS)]
REGISTRY = {kind.schema_id: kind.registered for kind in KINDS}
RECORDS = [(n, f"parcel-{n}@0", event_type_of(happened).encode(happened)) for n, happened in enumerate(EVENTS)]
COLUMNS = {"carrier": [on(Parcel.Sent).take("carrier"), on(Parcel.Lost).take("where")]}
TABLES = {
    "declared columns, the missing one not among them": Table.from_events(Parcel, key="parcel_id", columns=COLUMNS),
    "Python evolve": Table.from_events(Parcel, key="parcel_id"),
    "a stream": Stream.from_events(Parcel, events=[Parcel.Sent, Parcel.Lost], key="parcel_id"),
}
BRANCHES = branches(Parcel, {"heavy": field("weight") > 2}, otherwise="light")


def refused_by_python() -> dict[int, str]:
    """The offsets of the records that no event of today can be made of, and the message of each."""
    decoder, found = AvroDecoder(REGISTRY.__getitem__), {}
    for offset, _, value in RECORDS:
        schema, values = decoder.decode(value)
        try:
            Parcel.stored_type(schema.name).events(schema.version, values)
        except InvalidEventData as error:
            found[offset] = error.message
    return found


def frame(small):
    rows = [("parcel", 0, n, key.encode(), bytearray(value), "2026-01-01T00:00:00Z") for n, key, value in RECORDS]
    ddl = "topic string, partition int, offset bigint, key binary, value binary, ce_time string"
    return small.createDataFrame(rows, ddl).coalesce(1)


def test_python_refuses_what_lacks_a_required_field_and_names_it():
    refused = refused_by_python()
    lacking = [missing for _, missing in LACKING.values()]
    assert list(refused) == list(range(len(GOOD), len(EVENTS)))
    assert all(f"has no value for field {name}" in told for name, told in zip(lacking, refused.values(), strict=True))


@each_row("table", TABLES.values(), ids=TABLES)
def test_spark_refuses_the_same_records_and_names_the_same_fields(small, decoded, table):
    judge, found = Judge(REGISTRY, small), SetAside.nothing()
    found |= judge.faults(table, frame(small))
    told = {fault.offset: fault for fault in found}
    assert told.keys() == refused_by_python().keys()
    assert {fault.kind for fault in found} == {"field_missing"}
    for offset, (_, missing) in enumerate(LACKING.values(), len(GOOD)):
        assert missing in told[offset].error.message
    assert "give the field a default" in next(iter(found)).error.remedy


def test_a_router_makes_dead_letters_of_them(small):
    raw = frame(small).selectExpr("*", "CAST(NULL AS array<struct<key: string, value: binary>>) AS headers")
    routed = Routing(BRANCHES, REGISTRY).routed(raw).select("key", "topic").collect()
    dead = {row.key.decode() for row in routed if row.topic == "parcel.dead-letter"}
    assert dead == {f"parcel-{offset}@0" for offset in refused_by_python()}
