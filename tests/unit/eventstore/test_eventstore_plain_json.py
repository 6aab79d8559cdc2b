"""Plain values as JSON and back, and the arguments of commands that are sent later."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Aggregate, command, event
from eventstore.aggregates.command_schemas import decode_arguments, encode_arguments
from eventstore.errors import DeclarationError, InvalidEventData
from eventstore.fields.plain_json import dump_plain, load_plain

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False) | st.dates() | st.datetimes(timezones=st.just(UTC))
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(st.text(), inner)
)


@given(VALUES)
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
