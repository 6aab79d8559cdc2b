"""Names and places have one validated form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.errors import InvalidIdentifier
from eventstore.identifiers import (
    ANY,
    NO_STREAM,
    STREAM_EXISTS,
    Position,
    StreamName,
    accepted_heads,
    check_topic,
    check_type_name,
    snake_case,
)


def test_a_stream_name_is_split_at_its_first_dash() -> None:
    assert StreamName.parse("order-2026-01-02") == StreamName("order", "2026-01-02")
    assert str(StreamName("stock_item", "A-1")) == "stock_item-A-1"


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=200))
def test_any_printable_id_survives_its_text_form(stream_id: str) -> None:
    name = StreamName("order", stream_id)
    assert StreamName.parse(str(name)) == name


@pytest.mark.parametrize("text", ["order", "-1", "order-", "Order-1", "order-\x00", "order-a\tb", "or der-1"])
def test_what_is_no_stream_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidIdentifier):
        StreamName.parse(text)


def test_a_stream_name_of_255_characters_is_the_longest() -> None:
    StreamName("order", "x" * 249)
    with pytest.raises(InvalidIdentifier, match="256 characters"):
        StreamName("order", "x" * 250)


@pytest.mark.parametrize("name", ["placed", "order.Placed", "order..placed", "order.placed ", "1.a", ""])
def test_what_is_no_event_type_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidIdentifier, match="event type name"):
        check_type_name(name)


@pytest.mark.parametrize("topic", ["", "a b", "a/b", "é", "x" * 101])
def test_what_is_no_topic_is_refused(topic: str) -> None:
    with pytest.raises(InvalidIdentifier, match="topic"):
        check_topic(topic)


@pytest.mark.parametrize(
    ("expected", "heads"),
    [(NO_STREAM, (-1, -1)), (STREAM_EXISTS, (0, 2**31 - 1)), (ANY, (-1, 2**31 - 1)), (3, (3, 3))],
)
def test_an_expectation_is_a_range_of_heads(expected: int, heads: tuple[int, int]) -> None:
    assert accepted_heads(expected) == heads


def test_a_negative_version_is_no_expectation() -> None:
    with pytest.raises(InvalidIdentifier, match="NO_STREAM"):
        accepted_heads(-1)


def test_positions_order_by_transaction_first() -> None:
    assert Position(1, 9) < Position(2, 1) < Position(2, 3)


@pytest.mark.parametrize(
    ("name", "snake"),
    [("Order", "order"), ("StockItem", "stock_item"), ("HTTPCall", "http_call"), ("A1B", "a1_b")],
)
def test_class_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake
