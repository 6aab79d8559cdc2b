"""Unions and maps have in Spark the values of Python, whatever order the union's types had when they were written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from uuid import UUID

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import Table
from projections.spark.events import decode
from projections.spark.events.upcasting import literal
from projections.spark.kinds import Reduction
from tests.reference import fold_table
from tests.rows import each_row
from tests.spark.test_upcasting import raw_frame, rows_of


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
REGISTRY = {event_type_of(e).schema_id: event_type_of(e).registered for e in EVENTS}
RECORDS = [(n, f"till-1@{n}", event_type_of(e).encode(e)) for n, e in enumerate(EVENTS)]


@each_row("jar", [True, False], ids=["in the JVM", "in Python"])
def test_an_evolve_gets_every_value_as_itself(small, monkeypatch, jar):
    monkeypatch.setattr(decode, "avro_in_the_jvm", lambda: jar)
    table = Table.from_events(Till, key="till_id")
    found = rows_of(Reduction(REGISTRY).reduce(raw_frame(small, RECORDS), table), table)
    assert found == fold_table(table, RECORDS, REGISTRY)
    assert found["1"]["text"].count("UUID('00000000-0000-0000-0000-000000000003')") == 3
    assert "coins={'one': None, 'two': 2}" in found["1"]["text"]
    assert "either=9007199254740993, paid=Voucher(number=1, serial=UUID(" in found["1"]["text"]


def test_a_default_is_of_the_type_of_its_class(small):
    flag, number = literal(True, ["long", "boolean"]), literal(1, ["boolean", "long"])
    row = small.range(1).select(flag.alias("x"), number.alias("y")).first().asDict(recursive=True)
    assert row == {"x": {"member0": None, "member1": True}, "y": {"member0": None, "member1": 1}}
