"""A union's values are in Spark what they are in Python, whatever the order of its types was when they were written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from uuid import UUID

import pytest

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import Table
from projections.reference import fold_table
from projections.spark.events import decode
from projections.spark.events.upcasting import literal
from projections.spark.reading.inputs import Reduction
from tests.spark.test_upcasting import raw_frame, rows_of


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Card:
    number: int


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
        seen: str
        late: bool | int = True

    def on_rung(self, e: Rung) -> None:
        self.text += f"{e!r};"


EVENTS = [
    Before.Rung(either=Colour.RED, paid=Card(1), several=[1, None, UUID(int=1)]),
    Before.Rung(either=2**53 + 1, paid=Voucher(1, UUID(int=9)), several=[]),
    Before.Rung(either=0, paid=True, several=[None]),
    Till.Rung(either=1.0, paid=False, several=[UUID(int=5), 5], seen="now"),
]
REGISTRY = {event_type_of(e).schema_id: event_type_of(e).registered for e in EVENTS}
RECORDS = [(n, f"till-1@{n}", event_type_of(e).encode(e)) for n, e in enumerate(EVENTS)]


@pytest.mark.parametrize("jar", [True, False], ids=["in the JVM", "in Python"])
def test_an_evolve_gets_every_value_as_itself(spark, monkeypatch, jar):
    if not jar:
        monkeypatch.setattr(decode, "avro_in_the_jvm", lambda: False)
    table = Table.from_events(Till, key="till_id")
    found = rows_of(Reduction(REGISTRY).reduce(raw_frame(spark, RECORDS), table), table)
    assert found == fold_table(table, RECORDS, REGISTRY)
    assert found["1"]["text"].count("UUID('00000000-0000-0000-0000-000000000003')") == 3
    assert "either=9007199254740993, paid=Voucher(number=1, serial=UUID(" in found["1"]["text"]


def test_a_default_is_of_the_type_of_its_class(spark):
    flag, number = literal(True, ["long", "boolean"]), literal(1, ["boolean", "long"])
    row = spark.range(1).select(flag.alias("x"), number.alias("y")).first().asDict(recursive=True)
    assert row == {"x": {"member0": None, "member1": True}, "y": {"member0": None, "member1": 1}}
