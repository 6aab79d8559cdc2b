"""Every ordered pair of field types as a union: each value comes back as itself, or the pair is refused."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from itertools import permutations
from typing import Annotated, Any, Final, NewType, Union
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import ANY, Aggregate, Digits, MemoryEventStore, Personal, command, event
from eventstore.aggregates.command_schemas import decode_arguments, encode_arguments
from eventstore.errors import DeclarationError, InvalidEventData, UnsupportedFieldType
from eventstore.event_types import EventType, event_type_of
from eventstore.fields.plain_json import dump_plain, load_plain
from eventstore.fields.serialization import AvroDecoder
from eventstore.identifiers import StreamName
from eventstore.schema_registry import RegisteredSchema
from eventstore.snapshots import AggregateSnapshot, StateShape
from projections.spark.events.plain_values import plain_values
from projections.spark.events.python_avro import Kinds
from tests.rows import each_row


class Day(Enum):
    FIRST = "2026-01-01"
    KEY = "00000000-0000-0000-0000-000000000001"


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Card:
    number: str


@dataclass(frozen=True)
class Voucher:
    number: str
    worth: float | int = 0


@dataclass(frozen=True)
class Members:
    member0: int
    member1: int


Minor = NewType("Minor", int)
Whole = NewType("Whole", Annotated[Minor, "a note"])  # type: ignore[valid-newtype]

# Values that another type could be taken for.
VALUES: Final[dict[Any, list[Any]]] = {
    str: ["", "2026-01-01", "2026-01-01T00:00:00+00:00", "00000000-0000-0000-0000-000000000001", "1", "1.5", "true"],
    int: [0, 1, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)],
    float: [0.0, 1.0, -1.5, 2.0**53, math.inf],
    bool: [True, False],
    bytes: [b"", b"\x01", b"2026-01-01"],
    Decimal: [Decimal(0), Decimal("1.5"), Decimal("-12.3400")],
    Annotated[Decimal, Digits(38, 10)]: [Decimal(1), Decimal("1234567890123456789012345678.0123456789")],
    datetime: [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)],
    date: [date(1, 1, 1), date(2026, 1, 1), date(9999, 12, 31)],
    UUID: [UUID(int=0), UUID(int=1)],
    Day: list(Day),
    Level: list(Level),
    list[int]: [[], [1, 2], [2**53 + 1]],
    list[str]: [[], ["a"]],
    dict[str, int]: [{}, {"number": 1}],
    dict[str, str]: [{"number": "1"}],
    Card: [Card("1")],
    Voucher: [Voucher("1"), Voucher("2", 2**53 + 1), Voucher("3", 2.0)],
    Minor: [7, 2**53 + 1],
}

# The classes whose values Avro, or Spark, writes in one form.
SAME: Final = [
    {str, UUID, Day, Level},
    {int, datetime, date, Minor},
    {bytes, Decimal, Annotated[Decimal, Digits(38, 10)]},
    {list[int], list[str]},
    {dict[str, int], dict[str, str], Card},
    {dict[str, int], dict[str, str], Voucher},
]
PAIRS: Final = list(permutations(VALUES, 2))
HELD: Final = [pair for pair in PAIRS if not any(set(pair) <= same and set(pair) != {Card, Voucher} for same in SAME)]
REFUSED: Final = [pair for pair in PAIRS if pair not in HELD]

Wrap = Callable[[Any], Any]
PLACES: Final[dict[str, tuple[Wrap, Wrap]]] = {
    "alone": (lambda hint: hint, lambda value: value),
    "optional": (lambda hint: hint | None, lambda value: value),
    "in a list": (lambda hint: list[hint], lambda value: [value, value]),
    "in a map": (lambda hint: dict[str, hint], lambda value: {"k": value}),
    "in a list of optional ones": (lambda hint: list[hint | None], lambda value: [None, value]),
    "in an optional map of lists": (lambda hint: dict[str, list[hint]] | None, lambda value: {"k": [value]}),
}


def name(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint)) if getattr(hint, "__args__", None) is None else str(hint)


def named(pair: Any) -> str:
    return " | ".join(name(hint) for hint in pair)


def fields_of(pair: Any) -> dict[str, Any]:
    return {f"f{n}": wrap(Union[pair]) for n, (wrap, _) in enumerate(PLACES.values())}  # noqa: UP007 - of a variable


def event_class(hints: dict[str, Any]) -> Any:
    return event(name="bill.paid")(type("Paid", (), {"__annotations__": hints, "__module__": __name__}))


def cases(pair: Any) -> list[dict[str, Any]]:
    return [
        {f"f{n}": wrap(value) for n, (_, wrap) in enumerate(PLACES.values())} for hint in pair for value in VALUES[hint]
    ]


def classes(value: Any) -> Any:
    """The classes of a value and of all that it holds: 1 == 1.0 == True."""
    match value:
        case list():
            return [classes(inner) for inner in value]
        case dict():
            return {key: classes(inner) for key, inner in value.items()}
        case Card() | Voucher() | Members():
            return type(value), classes(vars(value))
    return type(value)


def require_same(found: dict[str, Any], sent: dict[str, Any]) -> None:
    assert (found, classes(found)) == (sent, classes(sent))


def decoded(kind: EventType, sent: Any) -> Any:
    return AvroDecoder({kind.schema_id: kind.registered}.__getitem__).decode(kind.encode(sent))[1]


@each_row("pair", HELD, ids=named)
def test_every_value_of_a_pair_comes_back_as_itself(pair: Any) -> None:
    paid = event_class(fields_of(pair))
    kind = event_type_of(paid)
    for values in cases(pair):
        require_same(vars(kind.from_plain(decoded(kind, paid(**values)))), values)


@each_row("pair", HELD, ids=named)
def test_every_value_of_a_pair_comes_back_from_a_snapshot_as_itself(pair: Any) -> None:
    hints = fields_of(pair)
    bill: Any = type("Bill", (Aggregate,), {"__annotations__": hints, "__module__": __name__, **dict.fromkeys(hints)})
    shape = StateShape(bill)
    for values in cases(pair):
        state = bill("1")
        vars(state).update(values)
        restored = shape.restored(bill, StreamName("bill", "1"), AggregateSnapshot("bill-1", 0, shape.encode(state)))
        require_same(restored.state(), values)


def from_arrow(schema: RegisteredSchema, plain: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as a Python worker gets them from Spark, made plain."""
    kinds, columns = Kinds(), {}
    for field in schema.schema["fields"]:
        name, kind = field["name"], kinds.of(field["type"])
        sent = [(kind.convert or (lambda value: value))(row[name]) for row in plain]
        columns[name] = pa.array(sent, kind.arrow).to_pylist(maps_as_pydicts="strict")
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    convert = plain_values(schema)
    return rows if convert is None else [convert(row) for row in rows]


@each_row("pair", HELD, ids=named)
def test_every_value_of_a_pair_comes_back_from_spark_as_itself_whatever_the_order_of_types_is_today(pair: Any) -> None:
    another = next(hint for hint in (bool, float, bytes) if hint not in pair)
    paid, turned = event_class(fields_of(pair)), event_class(fields_of((pair[1], another, pair[0])))
    kind, today = event_type_of(paid), event_type_of(turned)
    plain = [decoded(kind, paid(**values)) for values in cases(pair)]
    for values, sent, arrived in zip(cases(pair), plain, from_arrow(kind.registered, plain), strict=True):
        require_same(arrived, sent)
        require_same(vars(kind.from_plain(arrived)), values)
        require_same(vars(today.from_plain(arrived)), values)


@pytest.mark.parametrize(("hint", "value"), [(dict[str, int], {"member0": 1, "member1": 2}), (Members, Members(1, 2))])
def test_keys_that_spark_names_types_by_are_keys_like_others(hint: Any, value: Any) -> None:
    paid = event_class({"odd": hint | str})
    kind = event_type_of(paid)
    plain = decoded(kind, paid(odd=value))
    require_same(vars(kind.from_plain(plain)), {"odd": value})
    require_same(vars(kind.from_plain(from_arrow(kind.registered, [plain])[0])), {"odd": value})


@each_row("place", PLACES)
@each_row("pair", REFUSED, ids=named)
def test_a_pair_of_one_written_form_is_refused_when_the_class_is_made(pair: Any, place: str) -> None:
    with pytest.raises(UnsupportedFieldType, match=r"field odd.* of .*Paid holds"):
        event_class({"odd": PLACES[place][0](Union[pair])})  # noqa: UP007 - of a variable


@pytest.mark.parametrize(
    "hint",
    [
        float | Annotated[int | str, "a note"],
        Annotated[float | int, "a note"] | str,
        float | Annotated[int | str | None, ""],
        Whole | str | float,
    ],
    ids=str,
)
def test_a_union_within_a_union_is_one_union(hint: Any) -> None:
    paid = event_class({"amount": hint})
    kind = event_type_of(paid)
    for amount in (1, 1.0, "1"):
        require_same(vars(kind.from_plain(decoded(kind, paid(amount=amount)))), {"amount": amount})


@dataclass(frozen=True)
class Nothing:
    pass


class Payment(Aggregate):
    @event
    class Received:
        amount: int | Annotated[Decimal, Digits(10, 2)] | float
        by: Card | Voucher | Nothing | None = None
        when: datetime | bool = False
        tags: list[Voucher | UUID] | None = None
        colour: Day | dict[str, int] = Day.FIRST


@each_row(
    ("field", "value"),
    [
        ("amount", "3"), ("amount", True), ("amount", 2**63), ("amount", Decimal("0.001")), ("by", "card"),
        ("when", datetime(2026, 1, 1)), ("tags", [None]), ("colour", "2026-01-01"),
    ],
)  # fmt: skip
def test_a_value_of_no_branch_is_refused_by_field(field: str, value: Any) -> None:
    sent = Payment.Received(**{"amount": 1, field: value})
    with pytest.raises(InvalidEventData) as refused:
        event_type_of(sent).encode(sent)
    assert refused.value.place == f"payment.received.{field}"


def test_a_record_of_no_fields_comes_back_as_it_was() -> None:
    sent = Payment.Received(amount=1, by=Nothing(), tags=[Voucher("3"), UUID(int=3)])
    kind = event_type_of(sent)
    assert kind.from_plain(decoded(kind, sent)) == sent


class Refund(Aggregate):
    @event
    class Made:
        number: Annotated[int | float, Personal(erased=0)]
        by: Annotated[Card | Voucher | date | str, Personal(erased=Card("(erased)"))]
        all: Annotated[list[bytes | list[int]], Personal(erased=[])]


@each_row(("number", "by"), [(2**53 + 1, Voucher("1")), (1, Card("1")), (1.0, "2026-01-01"), (2.0, date(2026, 1, 1))])
def test_a_sealed_union_comes_back_as_it_was_until_it_is_erased(number: Any, by: Any) -> None:
    store, sent = MemoryEventStore(), Refund.Made(number=number, by=by, all=[b"", [], b"\1", [1]])
    store.append("refund-1", [sent], expected=ANY)
    (found,) = Refund.events_of(*store.read_stream("refund-1"))
    assert (found, type(found.number)) == (sent, type(number))
    store.erase("1")
    (found,) = Refund.events_of(*store.read_stream("refund-1"))
    assert found == Refund.Made(number=0, by=Card("(erased)"), all=[])


# ---- Plain values as JSON and back, and the arguments of commands that are sent later


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False) | st.dates() | st.datetimes(timezones=st.just(UTC))
)  # fmt: skip
PLAIN_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(st.text(), inner)
)


@given(PLAIN_VALUES)
def test_every_plain_value_comes_back_as_it_was(value):
    back = load_plain(dump_plain(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), -0.0, Decimal("1.20"), {"$time": "x"}, {"$a": 1}])
def test_values_that_look_alike_are_told_apart(value):
    assert repr(load_plain(dump_plain(value))) == repr(value)


@pytest.mark.parametrize(
    "text", ["", "[", '{"$time": 1}', '{"$uuid": "x"}', '{"$what": 1}', '{"$bytes": "&"}', "[" * 99999]
)
def test_another_text_is_a_typed_error(text):
    with pytest.raises(InvalidEventData, match="no JSON of ours"):
        load_plain(text)


def test_what_is_no_plain_value_is_refused():
    with pytest.raises(InvalidEventData, match="a object is no plain value"):
        dump_plain(object())


class Colour(enum.Enum):
    RED = "red"


class Box(Aggregate):
    @event
    class Packed:
        pass

    @command
    def pack(
        self,
        size: int,
        colour: Colour,
        *,
        weight: Decimal,
        day: date,
        at: datetime,
        key: UUID,
        notes: list[str] | None = None,
    ) -> None: ...

    @command
    def untyped(self, size) -> None: ...


def test_arguments_come_back_as_the_command_takes_them():
    given_ = {
        "colour": Colour.RED, "weight": Decimal("1.2000"), "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, tzinfo=UTC), "key": UUID(int=7), "notes": ["a", "b"],
    }  # fmt: skip
    text = encode_arguments(Box.pack, (3,), given_)
    assert decode_arguments(Box.pack, text) == {"size": 3, **given_}


def test_arguments_that_do_not_fit_are_refused_when_they_are_given():
    with pytest.raises(InvalidEventData, match="does not take these arguments: missing"):
        encode_arguments(Box.pack, (3,), {})
    with pytest.raises(InvalidEventData, match="a str does not fit argument size"):
        encode_arguments(Box.pack, ("3",), dict.fromkeys(("colour", "weight", "day", "at", "key", "notes")))
    with pytest.raises(DeclarationError, match="has no name or no type"):
        encode_arguments(Box.untyped, (3,), {})


def test_arguments_that_the_command_takes_no_more_are_refused_when_they_are_read():
    with pytest.raises(InvalidEventData, match="takes no argument 'gone'"):
        decode_arguments(Box.pack, '{"gone": 1}')
