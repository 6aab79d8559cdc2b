"""Casts and renames lose nothing: what is not the same in the new type or under the new name is refused."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import pytest

from eventstore import ANY, Aggregate, Digits, MemoryEventStore, event
from eventstore.errors import InvalidEventData, UnsupportedFieldType
from eventstore.event_types import EventType, event_type_of
from eventstore.fields.casting import cast_plain
from eventstore.fields.field_compilation import compile_type
from eventstore.fields.field_types import Compilation
from eventstore.fields.upcasting import Cast, Drop, Rename
from eventstore.schema_check import check_schemas
from projections.spark.events.upcasting import Reading
from tests.rows import each_row

WIDE = Annotated[Decimal, Digits(38, 10)]
WIDER = Annotated[Decimal, Digits(38, 0)]


@dataclass(frozen=True)
class Point:
    x: int


def avro(hint: Any) -> Any:
    return compile_type(hint, "x", Compilation("test", {})).avro


@each_row(
    ("value", "to", "expected"),
    [
        (2**53, float, 2.0**53),
        (2**62, float, 2.0**62),
        (-(2**63), float, -(2.0**63)),
        (2**63 - 1, WIDE, Decimal(2**63 - 1)),
        (Decimal("1234567890123456789012345678"), WIDE, Decimal("1234567890123456789012345678")),
        ("1234567890123456789012345678.0123456789", WIDE, Decimal("1234567890123456789012345678.0123456789")),
        ("9" * 38, WIDER, Decimal(10**38 - 1)),
        ("0" * 5000 + "7", int, 7),
        ("1." + "0" * 50, WIDER, Decimal(1)),
        (True, int, 1),
        (3, float, 3.0),
        (3, Decimal, Decimal(3)),
        (-3, str, "-3"),
        (Decimal("0.0000"), str, "0.0000"),
        (Decimal("12.5000"), Annotated[Decimal, Digits(4, 1)], Decimal("12.5")),
        (dt.date(2024, 2, 29), dt.datetime, dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        ("+007", int, 7),
        ("-12.50", Decimal, Decimal("-12.5")),
        ("2024-02-29", dt.date, dt.date(2024, 2, 29)),
        ("0000000A-0000-0000-0000-000000000000", uuid.UUID, uuid.UUID("0000000a-0000-0000-0000-000000000000")),
        (uuid.UUID(int=1), str, "00000000-0000-0000-0000-000000000001"),
        (None, int, None),
        ("same", str, "same"),
        (3, int | None, 3),
    ],
)
def test_a_cast_says_the_same_in_another_type_to_the_last_digit(value: Any, to: Any, expected: Any) -> None:
    found = cast_plain(value, avro(to))
    assert (found, type(found)) == (expected, type(expected))


@each_row(
    ("value", "to"),
    [
        (2**53 + 1, float),
        (-(2**53) - 1, float),
        (2**63 - 1, float),
        (Decimal("1234567890123456789012345678.01234567891"), WIDE),
        ("1234567890123456789012345678.01234567891", WIDE),
        ("9" * 39, WIDER),
        (Decimal(10) ** 28, WIDE),
        ("9" * 5000, int),
        ("1.5", int),
        ("7\n", int),
        ("٣", int),
        (str(2**63), int),
        ("1e3", Decimal),
        ("0.00001", Decimal),
        (10**14, Decimal),
        (Decimal("12.55"), Annotated[Decimal, Digits(4, 1)]),
        ("2024-02-30", dt.date),
        ("0000-01-01", dt.date),
        ("not-a-uuid", uuid.UUID),
        (1.5, int),
        (1.5, str),
        ([], str),
    ],
)
def test_a_value_that_would_be_rounded_cut_or_guessed_is_not_cast(value: Any, to: Any) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        cast_plain(value, avro(to))


@pytest.mark.parametrize("to", [list[int], dict[str, int], Point, int | str, list[int] | None, Point | int | None])
def test_a_cast_to_what_holds_other_values_is_refused_when_the_class_is_made(to: Any) -> None:
    with pytest.raises(UnsupportedFieldType, match="casts field x to a list, map, record or union"):

        @event(name="box.made", upcasters={1: [Cast("x", to)]})
        class Made:
            x: to


class Before(Aggregate, category="box"):
    @event
    class Made:
        old: int
        new: int


def renamed(*changes: Any) -> type[Aggregate]:
    class After(Aggregate, category="box"):
        @event(upcasters={1: list(changes)})
        class Made:
            new: int

    return After


def kind(owner: Any) -> EventType:
    return event_type_of(owner.Made)


CLASH = "field old cannot be renamed to new: the event has a field of that name"


def test_a_rename_onto_a_field_that_exists_is_refused_when_an_event_is_read() -> None:
    store = MemoryEventStore()
    store.append("box-1", [Before.Made(old=1, new=2)], expected=ANY)
    (recorded,) = store.read_stream("box-1")
    with pytest.raises(InvalidEventData, match=CLASH) as refused:
        renamed(Rename("old", to="new")).events_of(recorded)
    assert refused.value.place == "box.made.new"


def test_schema_check_names_a_rename_onto_a_field_that_exists() -> None:
    (finding,) = check_schemas([renamed(Rename("old", to="new"))], [kind(Before).registered]).misfits
    assert (finding.place, finding.problem) == ("box.made.new", CLASH)


def test_spark_reads_no_event_with_a_rename_onto_a_field_that_exists() -> None:
    reading = Reading.of(kind(Before).registered, kind(renamed(Rename("old", to="new"))))
    assert reading.problem == CLASH


@pytest.mark.parametrize(
    "changes",
    [
        [Drop("new"), Rename("old", to="new")],
        [Rename("new", to="other"), Rename("old", to="new")],
        [Rename("old", to="old"), Rename("new", to="new")],
        [Rename("absent", to="new")],
    ],
)
def test_a_rename_to_a_name_that_is_free_passes(changes: Any) -> None:
    after = renamed(*changes)
    assert kind(after).events(1, {"old": 1, "new": 2})
    assert check_schemas([after], [kind(Before).registered]).passed
