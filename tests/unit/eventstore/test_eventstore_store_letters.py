"""Dead letters of a subscription that reads a store: listed, shown, replayed to the group alone, discarded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, Personal, Subscriber, event, subscription
from eventstore.backends.sql.letter_rows import ActionRows, LetterReplays
from eventstore.backends.sql.source import StoreSource
from eventstore.deadletters import by_cause
from eventstore.errors import CheckpointMoved, InvalidEventData, NotFound, ReplayRefused
from projections import letters as letters_of
from tests.errors import raises
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.handlers import deliver_stored as deliver

REFUSED: set[int] = set()


class Person(Aggregate):
    @event
    class Registered:
        plan: str
        email: Annotated[str, Personal(erased="(erased)")]


@pytest.fixture
def store(keyed_store):
    REFUSED.clear()
    return keyed_store


def receive(store, *amounts):
    for amount in amounts:
        store.append("payment-1", [Payment.Received(amount=amount)], expected=ANY)


def booking(group="books", **options):
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        if event.amount in REFUSED:
            raise ValueError(f"no room for {event.amount}")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription("payment", group=group, **{"backoff": 0.001, "attempts": 2} | options)(book)


def given_up(store, *refused, group="books"):
    """Give these amounts up, then let the handler take them."""
    REFUSED.update(refused)
    deliver(store, booking(group))
    REFUSED.clear()
    return letters_of(store, "payment", group=group)


def test_letters_are_grouped_by_their_cause_and_shown_with_payload_and_headers(store):
    receive(store, 1, 2, 3)
    letters = given_up(store, 1, 3)
    (cause,) = by_cause(letters.open())
    assert (cause.error, cause.pattern, cause.count, cause.attempts) == ("ValueError", "no room for …", 2, 4)
    assert datetime.now(UTC) >= cause.last >= cause.first
    first, second = letters.open()
    assert [letter.origin for letter in (first, second)] == ["payment-1@0", "payment-1@2"]
    shown = letters.show(second.id)
    assert (shown.payload, shown.key, shown.letter.type) == ({"amount": 3}, "payment-1@2", "payment.received")
    assert shown.headers["ce_id"] == second.event_id


def test_a_replayed_letter_is_handled_once_and_by_its_group_alone(store):
    receive(store, 1, 2)
    letters = given_up(store, 1)
    given_up(store, 1, group="others")
    assert letters.replay(by="ann").count == 1
    assert deliver(store, booking()).handled == 1
    assert deliver(store, booking()).records == deliver(store, booking("others")).records == 0
    assert amounts(store.engine) == [2, 2, 1]
    (action,) = letters.actions()
    assert (action.action, action.by, action.to, action.result, action.origin) == (
        "replay", "ann", "group", "handled", "payment-1@0",
    )  # fmt: skip
    assert not list(letters.open())
    assert len(list(letters_of(store, "payment", group="others").open())) == 1


def test_a_letter_that_dies_again_is_listed_again(store):
    receive(store, 1)
    letters = given_up(store, 1)
    letters.replay()
    REFUSED.add(1)
    assert deliver(store, booking()).dead == 1
    assert deliver(store, booking()).records == 0
    assert [action.result for action in letters.actions()] == ["dead"]
    REFUSED.clear()
    letters.replay()
    assert deliver(store, booking()).handled == 1
    assert [action.result for action in letters.actions()] == ["dead", "handled"]


def test_a_replay_reaches_a_handler_without_a_transaction(store):
    seen = []

    def note(event: Payment.Received) -> None:
        if event.amount in REFUSED:
            raise ValueError("no")
        seen.append(event.amount)

    declared = subscription("payment", group="notes", backoff=0.001, attempts=1)(note)
    receive(store, 1)
    REFUSED.add(1)
    assert deliver(store, declared).dead == 1
    letters = letters_of(store, "payment", group="notes")
    letters.replay()
    assert deliver(store, declared).dead == 1
    REFUSED.clear()
    letters.replay()
    assert deliver(store, declared).handled == 1
    assert deliver(store, declared).records == 0
    assert seen == [1]


def test_a_replay_whose_effects_were_not_committed_is_delivered_again(store, monkeypatch):
    """Planted: the replay cannot be ended. Then no effect is there either, and it arrives again."""
    receive(store, 1)
    given_up(store, 1).replay()
    with monkeypatch.context() as patched:
        patched.setattr(LetterReplays, "handled", refuse)
        with pytest.raises(CheckpointMoved):
            deliver(store, booking())
    assert amounts(store.engine) == []
    assert deliver(store, booking()).handled == 1
    assert amounts(store.engine) == [1]


def refuse(self, tx, ids):
    raise CheckpointMoved("no", remedy="none")


def test_a_second_subscriber_does_not_commit_a_replay_that_the_first_has_handled(store):
    receive(store, 1)
    given_up(store, 1).replay()
    declared = booking(guarantee="at-least-once")
    with Subscriber(declared, StoreSource(store, declared, category="payment"), engine=store.engine) as slow:
        source = slow._source
        taken = source.poll(0)
        source.poll = lambda timeout: taken
        assert deliver(store, booking()).handled == 1
        with pytest.raises(CheckpointMoved, match="replayed dead letter"):
            slow.run_once(timeout=0)
    assert amounts(store.engine) == [1]


def test_a_command_that_is_killed_while_it_settles_loses_no_letter(store, monkeypatch):
    """Planted: the row is gone, and the action cannot be written."""
    receive(store, 1)
    letters = given_up(store, 1)
    with monkeypatch.context() as patched:
        patched.setattr(ActionRows, "note", crash)
        with pytest.raises(KeyboardInterrupt):
            letters.replay()
    assert len(list(letters.open())) == 1
    assert deliver(store, booking()).records == 0


def crash(*_):
    raise KeyboardInterrupt


def test_the_replay_of_a_deleted_event_ends_without_a_call(store):
    receive(store, 1)
    letters = given_up(store, 1)
    letters.replay()
    store.delete_stream("payment-1", expected=0)
    assert deliver(store, booking()).handled == 0
    assert [action.result for action in letters.actions()] == ["deleted"]


def test_an_edited_letter_is_handled_with_its_new_payload_under_its_old_id(store):
    receive(store, -5)
    letters = given_up(store, -5)
    (letter,) = letters.open()
    letters.replay([letter.id], edit={"amount": 5})
    assert deliver(store, booking()).handled == 1
    assert amounts(store.engine) == [5]
    assert [action.edited for action in letters.actions()] == [True]
    assert next(store.read_stream("payment-1")).data == {"amount": -5}
    with store.engine.connect() as connection:
        (event_id,) = connection.execute(sa.text("select event_id from factfold_inbox")).scalars()
    assert event_id == letter.event_id.replace("-", "")


@pytest.mark.parametrize(
    ("ask", "kind", "code", "cause"),
    [
        *(
            (lambda letters, id, edit=edit: letters.replay([id], edit=edit),
             InvalidEventData, "invalid-event-data", cause)
            for edit, cause in (
                ({"amount": "five"}, "'five'"), ({"amount": 5, "note": ""}, "no field 'note'"),
                ({}, "lacks field 'amount'"), ({"amount": 1 << 80}, "amount"),
            )
        ),
        (lambda letters, id: letters.replay(edit={"amount": 1}),
         ReplayRefused, "replay-refused", "all are asked for"),
        (lambda letters, id: letters.replay(to="topic"),
         ReplayRefused, "replay-refused", "not a topic"),
        (lambda letters, id: letters.discard([id, "x"]),
         NotFound, "letter-missing", "no open dead letter 'x'"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_with_a_letter_is_refused_and_it_stays_open(store, ask, kind, code, cause):
    receive(store, 5, 6)
    letters = given_up(store, 5, 6)
    with raises(kind, code=code, match=cause):
        ask(letters, next(letters.open()).id)
    assert len(list(letters.open())) == 2


def test_a_discarded_letter_is_neither_listed_nor_delivered(store):
    receive(store, 1, 2)
    letters = given_up(store, 1, 2)
    told = []
    settled = letters.discard([next(letters.open()).id], why="a test", on_progress=lambda *now: told.append(now))
    assert (settled.count, told) == (1, [(1, 1)])
    assert [letter.origin for letter in letters.open()] == ["payment-1@1"]
    assert deliver(store, booking()).records == 0
    assert [(action.action, action.result, action.why) for action in letters.actions()] == [
        ("discard", "discarded", "a test")
    ]


def test_a_replay_that_waits_is_withdrawn_by_discarding_its_letter(store):
    receive(store, 1, 2)
    letters = given_up(store, 1, 2)
    first, second = letters.open()
    letters.replay([first.id])
    assert letters.discard([first.id, second.id], why="it hangs").count == 2
    assert deliver(store, booking()).records == 0
    assert sorted((one.action, one.result, one.why) for one in letters.actions() if one.letter == first.id) == [
        ("discard", "discarded", "it hangs"), ("replay", "withdrawn", None),
    ]  # fmt: skip
    with raises(NotFound, code="letter-missing"):
        letters.discard([first.id])


def test_replays_that_were_given_back_come_again_and_new_events_behind_them(store):
    receive(store, 1)
    letters = given_up(store, 1)
    receive(store, 2)
    letters.replay()
    source = StoreSource(store, booking(), category="payment")
    source.open(lambda: None)
    taken = source.poll(0)
    source.give_back(taken)
    again = source.poll(0)
    assert [one.event.data["amount"] for one in again] == [one.event.data["amount"] for one in taken] == [1]
    with store.engine.begin() as tx:
        source.checkpoint(tx, again)
    assert [one.event.data["amount"] for one in source.poll(0)] == [2]


def test_a_database_without_dead_letters_is_told(store):
    with raises(NotFound, code="letter-missing", match="no table factfold_dead_letters"):
        letters_of(store, "payment", group="books")


def registering(seen):
    def register(event: Person.Registered, tx: sa.Connection) -> None:
        if not seen:
            seen.append(None)
            raise ValueError(f"{event.email} is taken")
        seen.append((event.plan, event.email))

    return subscription("person", group="mail", attempts=1, backoff=0.001)(register)


def test_personal_values_are_masked_and_stay_as_recorded_through_an_edit(store):
    store.append("person-7", [Person.Registered(plan="basic", email="ann@example.org")], expected=ANY)
    seen = []
    assert deliver(store, registering(seen), category="person").dead == 1
    letters = letters_of(store, "person", group="mail")
    (letter,) = letters.open()
    shown = letters.show(letter.id)
    assert shown.payload == {"plan": "basic", "email": "***"}
    assert "ann" not in repr(shown)
    with pytest.raises(InvalidEventData, match="email is personal"):
        letters.replay([letter.id], edit={"plan": "gold", "email": "bob@example.org"})
    letters.replay([letter.id], edit={**shown.payload, "plan": "gold"})
    with store.engine.connect() as connection:
        (payload,) = connection.execute(sa.text("select payload from factfold_dead_letter_actions")).scalars()
    assert payload == '{"plan": "gold"}'
    assert deliver(store, registering(seen), category="person").handled == 1
    assert seen[1:] == [("gold", "ann@example.org")]
