"""What a record of a dead-letter topic says, which letters are open, and how an edit is held against a schema."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated
from uuid import UUID

import pytest

from eventstore import Aggregate, Personal, event
from eventstore.deadletters.letters import Action, Letter, by_cause, pattern_of, require_open
from eventstore.deadletters.records import (
    ListedLetter,
    edited_values,
    open_letters,
    origin_partition,
    own_headers,
    read_settlement,
    settlement,
)
from eventstore.deadletters.topic import held_back
from eventstore.delivery.source import shown_payload
from eventstore.errors import ForeignRecord, InvalidEventData, NotFound
from eventstore.event_types import event_type_of
from eventstore.fields.plain_json import dump_plain, load_plain
from eventstore.fields.serialization import AvroDecoder
from eventstore.personal.sealing import Sealed
from eventstore.topics import TopicRecord, is_of_a_group, settled_topic
from tests.errors import raises
from tests.rows import each_row

TIME = "2026-03-01T12:00:00.123456789Z"  # of Java, which counts nanoseconds


def record(at, *, value=b"value", **told):
    end = {"topic": "payment", "partition": 2, "offset": 44, "group": "books", "error": "ValueError",
           "message": "no room for 3", "attempts": 5, "time": TIME} | told  # fmt: skip
    own = [("ce_id", b"one"), ("ce_type", b"payment.received"), ("ce_subject", b"payment-1")]
    death = [(f"dead_letter_{name}", str(value).encode()) for name, value in end.items() if value is not None]
    return TopicRecord("payment.books.dead-letter", 0, at, b"key", value, (*own, *death), 0)


def letter_of(record):
    (found,) = open_letters([record], ()).values()
    return found.letter


def test_a_letter_says_where_it_came_from_and_what_gave_it_up():
    letter = letter_of(record(17))
    assert letter == Letter(
        id="0@17", origin="payment[2]@44", error="ValueError", message="no room for 3", attempts=5,
        time=datetime(2026, 3, 1, 12, 0, 0, 123456, UTC), event_id="one", type="payment.received", stream="payment-1",
    )  # fmt: skip
    assert [name for name, _ in own_headers(record(17))] == ["ce_id", "ce_type", "ce_subject"]
    assert origin_partition(record(17), "payment") == 2
    assert origin_partition(record(17), "payment.books.retry") is None


@pytest.mark.parametrize(
    ("told", "field", "found"),
    [({"attempts": "many"}, "attempts", 0), ({"time": "noon"}, "time", None), ({"time": "2026-03-01"}, "time", None),
     ({"error": None}, "error", "unknown"), ({"message": None}, "message", "")],
)  # fmt: skip
def test_headers_that_another_writer_made_are_no_obstacle(told, field, found):
    assert getattr(letter_of(record(1, **told)), field) == found


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"omitted_bytes": 99}, "99 bytes are more"),
        ({"error": "RecordsUnreadable"}, "could not be read: RecordsUnreadable"),
    ],
)
def test_a_letter_without_its_record_says_why_it_cannot_be_replayed(told, why):
    assert why in letter_of(record(1, value=None, **told)).why_not


def places(*records, settled=()):
    return {letter_id: one.places for letter_id, one in open_letters(records, settled=settled).items()}


def test_copies_of_one_death_are_one_letter_until_they_are_settled_and_other_records_or_deaths_are_others():
    copies = [record(1), record(2)]
    assert places(*copies, record(3, offset=90)) == {"0@1": ((0, 1), (0, 2)), "0@3": ((0, 3),)}
    assert len(places(record(1), record(2, value=b"other"))) == 2  # of a source topic made anew
    assert places(*copies, settled={(0, 1), (0, 2)}) == {}
    assert list(places(*copies, settled={(0, 1)})) == ["0@2"]


def test_a_letter_with_copies_tells_of_its_last_death_under_the_id_of_its_first():
    (found,) = open_letters([record(1, attempts=1), record(2, attempts=3)], settled=()).values()
    assert (found.letter.id, found.letter.attempts, found.first) == ("0@1", 3, (0, 1))


def event_record(key):
    return TopicRecord("order", 0, 0, key, b"value", (), 0)


@pytest.mark.parametrize(
    ("letters", "records", "held"),
    [
        ([b"order-7@1", b"order-7@2"], [b"order-7@1", b"order-7@2", b"order-8@5"], set()),
        ([b"order-7@1"], [b"order-7@1", b"order-7@2"], {"order-7"}),
        ([b"order-7@1", b"order-7@2"], [b"order-7@0", b"order-7@2"], set()),
        ([b"order-7@1", b"order-8@1"], [b"order-7@2", b"order-8@1"], {"order-7"}),
        ([b"order-7@2", b"order-7@1"], [], {"order-7"}),
        ([b"no version", None], [b"no version", None, b"order-7@1"], set()),
    ],
    ids=[
        "all of its later events",
        "one is left out",
        "an earlier one is repaired",
        "each stream by itself",
        "out of order",
        "no key",
    ],
)
def test_a_stream_with_later_events_that_are_no_letters_is_held_back(letters, records, held):
    found = [ListedLetter(letter_of(record(1)), ((0, 1),), key, ("order", 0, 0)) for key in letters]
    assert held_back(found, map(event_record, records)) == held


def test_an_action_is_read_as_it_was_written():
    action = Action(
        letter="0@2", origin="payment[2]@44", action="replay", by="ann@host", time=datetime(2026, 3, 1, tzinfo=UTC),
        result="sent", event_id="one", to="group", edited=True,
    )  # fmt: skip
    sent = settlement(action, [(0, 1), (0, 2)], "t", home="id")
    stored = TopicRecord("t", 0, 0, sent.key, sent.value, (), 0)
    assert read_settlement(stored) == (action, "id", [(0, 1), (0, 2)])


@pytest.mark.parametrize("value", [None, b"{}", b"no JSON", json.dumps({"places": [[0, 1]], "time": "x"}).encode()])
def test_a_foreign_record_among_the_actions_stops_the_command(value):
    with raises(ForeignRecord, code="foreign-record", match="no action"):
        read_settlement(TopicRecord("t", 0, 7, None, value, (), 0))


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("no room for 2", "no room for …"),
        ("order 'o1' of 018f0000-0000-7000-8000-000000000000 is gone", "order … of … is gone"),
        ('key "a b" at 12.5 %\n  remedy: none', "key … at … %"),
        ("SHA256 differs", "SHA256 differs"),
    ],
)
def test_what_differs_from_record_to_record_is_no_part_of_a_cause(message, pattern):
    assert pattern_of(message) == pattern


def test_the_most_frequent_cause_comes_first():
    letters = [Letter(id=str(n), origin="x", error=error, message="m") for n, error in enumerate("ABB")]
    assert [(cause.error, cause.letters) for cause in by_cause(letters)] == [("B", ("1", "2")), ("A", ("0",))]


def test_a_personal_value_is_masked_whether_it_is_sealed_or_open():
    kind = event_type_of(Account.Opened(plan="gold", email="ann@example.org"))
    assert shown_payload(kind.registered, {"plan": "gold", "email": Sealed(b"x")}) == {"plan": "gold", "email": "***"}
    assert shown_payload(kind.registered, {"plan": "gold", "email": "ann"}) == {"plan": "gold", "email": "***"}


class Account(Aggregate):
    @event
    class Closed:
        customer: str
        reason: str
        email: Annotated[str, Personal(subject="customer", erased="(erased)")]

    @event
    class Opened:
        plan: str
        email: Annotated[str, Personal(erased="(erased)")]


def test_an_edit_does_not_give_a_sealed_value_another_subject():
    kind = event_type_of(Account.Closed(customer="c1", reason="r", email="ann@example.org"))
    recorded = {"customer": "c1", "reason": "r", "email": Sealed(b"x")}
    chosen = {"customer": "c1", "reason": "new", "email": "***"}
    assert edited_values(kind.registered, recorded, chosen, place="p") == {"customer": "c1", "reason": "new"}
    with pytest.raises(InvalidEventData, match="customer names the subject"):
        edited_values(kind.registered, recorded, {**chosen, "customer": "c2"}, place="p")


def test_an_unknown_id_is_named():
    with raises(NotFound, code="letter-missing", match="'0@9'"):
        require_open(["0@1", "0@9"], {"0@1"}, "place")


def test_settled_topics_are_of_a_group_and_have_room_behind_the_longest_name():
    longest = f"{'t' * 50}.{'g' * 37}.dead-letter"
    assert len(longest) == 100
    assert settled_topic(longest).name == f"{longest}.settled"
    assert is_of_a_group(f"{longest}.settled")
    assert not is_of_a_group("payment.settled")


class Parcel(Aggregate):
    @event
    class Weighed:
        price: Decimal
        day: date
        at: datetime
        tag: UUID
        raw: bytes
        share: float
        notes: list[str]
        marks: dict[str, int]
        name: str | None


WEIGHED = Parcel.Weighed(
    price=Decimal("1.20"), day=date(2026, 3, 1), at=datetime(2026, 3, 1, 12, tzinfo=UTC), tag=UUID(int=7), raw=b"\x00",
    share=0.5, notes=["a"], marks={"$x": 1}, name=None,
)  # fmt: skip


SCHEMA, VALUES = AvroDecoder(lambda _: event_type_of(WEIGHED).registered).decode(event_type_of(WEIGHED).encode(WEIGHED))


def test_a_payload_of_every_type_is_edited_as_it_was_shown():
    shown = load_plain(dump_plain(VALUES))
    assert edited_values(SCHEMA, VALUES, {**shown, "name": "new"}, place="p") == {**VALUES, "name": "new"}


@each_row(
    ("field", "value"), [("price", "1.20"), ("day", "2026-03-01"), ("share", "half"), ("notes", "a"), ("marks", [1])]
)
def test_a_value_of_another_type_is_refused(field, value):
    with pytest.raises(InvalidEventData):
        edited_values(SCHEMA, VALUES, {**VALUES, field: value}, place="p")
