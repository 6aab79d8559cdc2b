"""What is no name, no event or no list of events is refused by an error of ours, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import hypothesis
import pytest
from hypothesis import strategies as st

from eventstore import ANY, Dispatcher, NewEvent, StreamAppend
from eventstore.errors import FactfoldError, InvalidArgument, InvalidEventData, InvalidIdentifier, UnknownEventType
from eventstore.identifiers import (
    NO_STREAM,
    STREAM_EXISTS,
    Position,
    StreamName,
    accepted_heads,
    check_category,
    check_group,
    check_schema,
    check_source,
    check_subject,
    check_tenant,
    check_topic,
    check_type_name,
    snake_case,
)
from eventstore.store import EventStore
from eventstore.testing.scenario import given
from tests.errors import raises
from tests.rows import each_row
from tests.unit.eventstore.counter import Counter

ADDED = Counter.Counted(by=1)
NO_TEXT: list[Any] = [42, True, 1.5, None, UUID(int=1), b"counter-1", ["counter-1"], Counter]


@pytest.fixture
def store(either_store: EventStore) -> EventStore:
    return either_store


STREAM_USES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, name: store.append(name, [ADDED], expected=ANY),
    "append_batch": lambda store, name: store.append_batch([StreamAppend(name, [ADDED], ANY)]),
    "read_stream": lambda store, name: list(store.read_stream(name)),
    "head": lambda store, name: store.head(name),
    "archive_stream": lambda store, name: store.archive_stream(name, expected=ANY),
    "unarchive_stream": lambda store, name: store.unarchive_stream(name),
    "is_archived": lambda store, name: store.is_archived(name),
    "delete_stream": lambda store, name: store.delete_stream(name, expected=ANY),
}
ID_USES: dict[str, Callable[[Any, Any], Any]] = {
    "load": lambda store, id: Dispatcher(store).load(Counter, id),
    "send": lambda store, id: Dispatcher(store).send(id, Counter.add, 1),
    "StreamName": lambda store, id: StreamName("counter", id),
    "Aggregate.stream": lambda store, id: Counter(id).stream,
}
CHECKS = [
    StreamName.parse,
    check_category,
    check_group,
    check_schema,
    check_source,
    check_subject,
    check_tenant,
    check_topic,
    check_type_name,
]


@each_row("name", NO_TEXT, ids=repr)
@each_row("use", STREAM_USES)
def test_a_stream_name_that_is_no_text_is_refused(store: EventStore, use: str, name: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        STREAM_USES[use](store, name)


@each_row("id", NO_TEXT, ids=repr)
@each_row("use", ID_USES)
def test_a_stream_id_that_is_no_text_is_refused(store: EventStore, use: str, id: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        ID_USES[use](store, id)


def test_the_remedy_is_to_give_a_text() -> None:
    with pytest.raises(InvalidIdentifier, match="stream id '42' is of type int, not a text") as refused:
        StreamName("counter", 42)  # type: ignore[arg-type]
    assert refused.value.remedy == "give a text: str(id)"


@each_row("name", NO_TEXT, ids=repr)
@each_row("check", CHECKS, ids=lambda check: check.__name__)
def test_every_name_that_is_no_text_is_refused(check: Callable[[Any], Any], name: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        check(name)


@pytest.mark.parametrize("offered", [Counter.Counted, NewEvent(Counter.Counted)], ids=["bare", "in a NewEvent"])
def test_a_class_is_no_event(store: EventStore, offered: Any) -> None:
    with pytest.raises(InvalidEventData, match=r"Counter\.Counted is a class, not an event"):
        store.append("counter-1", [ADDED, offered], expected=ANY)
    assert list(store.read_stream("counter-1")) == []


@each_row("offered", [int, 3, None, "x", {}, object(), NewEvent(NewEvent(ADDED)), Counter])
def test_what_is_no_event_is_refused(store: EventStore, offered: Any) -> None:
    with pytest.raises(FactfoldError):
        store.append("counter-1", [ADDED, offered], expected=ANY)
    assert list(store.read_stream("counter-1")) == []


def test_an_aggregate_emits_no_class() -> None:
    with pytest.raises(UnknownEventType, match=r"Counter has no event .*Counter\.Counted"):
        Counter("1").emit(Counter.Counted)


def test_nothing_is_tried_with_a_class() -> None:
    with pytest.raises(InvalidEventData, match="is a class"):
        given(Counter, Counter.Counted).state()


@each_row(
    "events", [ADDED, Counter.Counted, "ab", b"ab", 3, None, iter([ADDED]), {ADDED}], ids=lambda e: type(e).__name__
)
def test_what_is_no_list_of_events_is_refused(store: EventStore, events: Any) -> None:
    with raises(InvalidArgument, code="invalid-append", match="no list of events"):
        store.append("counter-1", events, expected=ANY)
    assert list(store.read_stream("counter-1")) == []


def test_a_stream_name_is_split_at_its_first_dash() -> None:
    assert StreamName.parse("order-2026-01-02") == StreamName("order", "2026-01-02")
    assert str(StreamName("stock_item", "A-1")) == "stock_item-A-1"


@hypothesis.given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=200))
def test_any_printable_id_survives_its_text_form(stream_id: str) -> None:
    name = StreamName("order", stream_id)
    assert StreamName.parse(str(name)) == name


@each_row(
    ("check", "text", "words"),
    [
        *((StreamName.parse, text, "") for text in ("order", "-1", "order-", "Order-1", "order-\x00", "order-a\tb",
                                                    "or der-1")),
        *((check_type_name, text, "event type name")
          for text in ("placed", "order.Placed", "order..placed", "order.placed ", "1.a", "")),
        *((check_topic, text, "topic") for text in ("", "a b", "a/b", "é", "x" * 101)),
        (lambda text: StreamName("order", text), "x" * 250, "256 characters"),
    ],
)  # fmt: skip
def test_what_is_no_such_name_is_refused(check: Callable[[Any], Any], text: str, words: str) -> None:
    with pytest.raises(InvalidIdentifier, match=words or None):
        check(text)
    assert StreamName("order", "x" * 249)


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
