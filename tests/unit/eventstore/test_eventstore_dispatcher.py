"""A command is accepted or refused, lost races are decided again, and middleware stands around every command."""

from __future__ import annotations

import inspect
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4, uuid5

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from eventstore import (
    ANY,
    NO_STREAM,
    Accepted,
    AsyncDispatcher,
    AsyncSqlEventStore,
    Dispatcher,
    MasterKeys,
    MemoryEventStore,
    Metadata,
    NewEvent,
    Refusal,
    SqlEventStore,
    command,
    subscription,
)
from eventstore.aggregates.dispatcher import logged, required, traced
from eventstore.backends.sql.async_store import AsyncJoinedStreams
from eventstore.backends.sql.reading import JoinedStreams
from eventstore.errors import DeclarationError, EventIdTaken, InvalidIdentifier, Refused, WrongExpectedVersion
from eventstore.snapshots import Snapshots
from eventstore.store import Streams
from eventstore.testing.delivering import deliver
from tests.errors import raises
from tests.ledger import LEDGER, Payment, amounts
from tests.rows import each_row
from tests.unit.eventstore.counter import Counter, noting
from tests.unit.eventstore.customer import Customer


def test_an_accepted_command_returns_what_was_recorded(store: SqlEventStore) -> None:
    accepted = Dispatcher(store).send("a", Counter.add, 3)
    assert isinstance(accepted, Accepted)
    assert (accepted.stream, accepted.version, len(accepted.events)) == ("counter-a", 0, 1)
    assert list(store.read_stream("counter-a")) == list(accepted.events)
    assert (accepted.command.name, accepted.command.arguments) == ("counter.add", {"by": 3})


def test_a_refused_command_returns_its_reason_and_stores_nothing(store: SqlEventStore) -> None:
    refusal = Dispatcher(store).send("a", Counter.add, 3, at_most=2)
    assert isinstance(refusal, Refusal)
    assert (refusal.stream, refusal.reason) == ("counter-a", "0 and 3 are more than 2")
    assert store.head("counter-a") is None


def test_a_refusal_that_must_not_pass_is_raised_and_takes_the_transaction_with_it(store: SqlEventStore) -> None:
    dispatcher = Dispatcher(store)
    assert dispatcher.send_or_raise("a", Counter.add, 3).version == 0

    def add_twice() -> None:
        with store.engine.begin() as tx:
            dispatcher.within(tx).send_or_raise("b", Counter.add, 1)
            dispatcher.within(tx).send_or_raise("a", Counter.add, 3, at_most=2)

    with pytest.raises(Refused, match="3 and 3 are more than 2") as refused:
        add_twice()
    assert refused.value.place == "counter-a"
    assert store.head("counter-b") is None


def test_a_command_that_changes_nothing_is_accepted(store: SqlEventStore) -> None:
    dispatcher = Dispatcher(store)
    dispatcher.send("a", Counter.add, 3)
    accepted = dispatcher.send("a", Counter.add, 0)
    assert isinstance(accepted, Accepted)
    assert (accepted.version, accepted.events) == (0, ())


def test_events_name_the_command_that_caused_them_and_a_conversation_goes_on(store: SqlEventStore) -> None:
    talk = Metadata(correlation_id="talk", causation_id="an event", traceparent="00-ab-cd-01")
    alone = Dispatcher(store).send("a", Counter.add, 3)
    spoken = Dispatcher(store).with_metadata(talk).send("a", Counter.add, 3)
    ids = [str(accepted.command.id) for accepted in (alone, spoken)]
    assert [recorded.metadata for recorded in store.read_stream("counter-a")] == [
        Metadata(correlation_id=ids[0], causation_id=ids[0]),
        Metadata(correlation_id="talk", causation_id=ids[1], traceparent="00-ab-cd-01"),
    ]


def test_commands_at_once_lose_nothing(store: SqlEventStore) -> None:
    dispatcher = Dispatcher(store, attempts=100)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: dispatcher.send("a", Counter.add, 1), range(24)))
    assert dispatcher.load(Counter, "a").count == 24


class Rival:
    """A store in which another writer is always, or for some time, faster."""

    def __init__(self, store: SqlEventStore, wins: int) -> None:
        self._store = store
        self.wins = wins

    def append(self, stream: Any, events: Any, **options: Any) -> Any:
        if self.wins:
            self.wins -= 1
            self._store.append(stream, [Counter.Counted(by=10)], expected=ANY)
        return self._store.append(stream, events, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_lost_race_is_decided_again_on_the_new_state(store: SqlEventStore) -> None:
    refusal = Dispatcher(Rival(store, wins=2)).send("a", Counter.add, 5, at_most=20)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "20 and 5 are more than 20"


def test_after_a_bounded_number_of_lost_races_the_conflict_is_shown(store: SqlEventStore) -> None:
    rival = Rival(store, wins=100)
    with pytest.raises(WrongExpectedVersion) as lost:
        Dispatcher(rival, attempts=3).send("a", Counter.add, 1)
    assert (rival.wins, lost.value.actual) == (97, 2)


def test_the_same_command_twice_gets_the_events_of_the_first_and_leaves_none(store: SqlEventStore) -> None:
    dispatcher, same = Dispatcher(store), uuid4()
    dispatcher.send("a", Counter.add, 1)
    first = dispatcher.once(same).send("a", Counter.add_each, 1, 2, 3)
    dispatcher.send("a", Counter.add, 1)
    assert isinstance(first, Accepted)
    again = dispatcher.once(same).send("a", Counter.add_each, 1, 2, 3)
    assert (again.events, again.version) == (first.events, 3)
    assert (len(again.events), store.head("counter-a")) == (3, 4)


def test_a_repetition_is_not_refused_for_what_the_first_one_did(store: SqlEventStore) -> None:
    dispatcher = Dispatcher(store).once(uuid4())
    first = dispatcher.send("a", Counter.add, 3, at_most=5)
    assert isinstance(first, Accepted)
    again = dispatcher.send("a", Counter.add, 3, at_most=5)
    assert isinstance(again, Accepted)
    assert again.events == first.events


def test_a_refused_command_may_be_accepted_later_under_the_same_id(store: SqlEventStore) -> None:
    dispatcher, patient = Dispatcher(store), Dispatcher(store).once(uuid4())
    dispatcher.send("a", Counter.add, 5)
    assert isinstance(patient.send("a", Counter.add, 3, at_most=5), Refusal)
    dispatcher.send("a", Counter.add, -5)
    assert isinstance(patient.send("a", Counter.add, 3, at_most=5), Accepted)
    assert dispatcher.load(Counter, "a").count == 3


def test_repetitions_at_once_are_one_command(store: SqlEventStore) -> None:
    dispatcher = Dispatcher(store, attempts=100).once(uuid4())
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: dispatcher.send("a", Counter.add_each, 1, 2), range(16)))
    assert len({result.events[0].id for result in results}) == 1
    assert {result.version for result in results} == {1}
    assert store.head("counter-a") == 1


def test_a_repetition_that_was_overtaken_says_what_was_stored_and_remembers_nothing_else(store: SqlEventStore) -> None:
    """Decided on a state without the other's event, and found appended after it."""
    same, snapshots = uuid4(), Snapshots(store, cached=2)

    class Overtaken(Rival):
        def append(self, stream: Any, events: Any, **options: Any) -> Any:
            if self.wins:
                self.wins -= 1
                self._store.append(stream, [Counter.Counted(by=10)], expected=ANY)
                Dispatcher(self._store).once(same).send("a", Counter.add, 1)
            return self._store.append(stream, events, **options)

    found = Dispatcher(Overtaken(store, wins=1), snapshots=snapshots).once(same).send("a", Counter.add, 1)
    assert isinstance(found, Accepted)
    assert (found.version, list(found.events)) == (1, list(store.read_stream("counter-a", from_version=1)))
    assert Dispatcher(store, snapshots=snapshots).load(Counter, "a").count == 11


def test_an_id_of_a_command_to_another_aggregate_is_refused(store: SqlEventStore) -> None:
    dispatcher = Dispatcher(store).once(uuid4())
    dispatcher.send("a", Counter.add, 1)
    with pytest.raises(EventIdTaken, match="was sent to counter-a before"):
        dispatcher.send("b", Counter.add, 1)
    assert store.head("counter-b") is None


def test_an_id_of_another_command_to_the_same_aggregate_is_refused(store: SqlEventStore) -> None:
    dispatcher = Dispatcher(store).once(uuid4())
    dispatcher.send("a", Counter.add, 1)
    with raises(
        EventIdTaken,
        code="command-id-taken",
        match=r"sent to counter-a before, as counter\.add, and now comes as counter\.add_each",
    ):
        dispatcher.send("a", Counter.add_each, 1)
    assert store.head("counter-a") == 0


def test_of_two_commands_under_one_id_at_once_one_is_refused(store: SqlEventStore) -> None:
    """Both find that nothing is there yet, and both decide on one event."""
    same = uuid4()

    class Overtaken(Rival):
        def append(self, stream: Any, events: Any, **options: Any) -> Any:
            if self.wins:
                self.wins -= 1
                Dispatcher(self._store).once(same).send("a", Counter.add_each, 7)
            return self._store.append(stream, events, **options)

    with raises(EventIdTaken, code="command-id-taken", match=r"as counter\.add_each"):
        Dispatcher(Overtaken(store, wins=1)).once(same).send("a", Counter.add, 1)
    assert Dispatcher(store).load(Counter, "a").count == 7


def test_the_events_of_a_command_with_an_id_say_which_command_it_was(store: SqlEventStore) -> None:
    same = uuid4()
    Dispatcher(store).once(same).send("a", Counter.add_each, 1, 2)
    causes = {recorded.metadata.causation_id for recorded in store.read_stream("counter-a")}
    assert causes == {f"{same} counter.add_each"}


def test_an_event_that_does_not_say_which_command_it_was_is_taken_for_the_same(store: SqlEventStore) -> None:
    """As an earlier release appended them."""
    same = uuid4()
    metadata = Metadata(causation_id=str(same))
    first = NewEvent(Counter.Counted(by=1), id=uuid5(same, "0"), metadata=metadata)
    store.append("counter-a", [first], expected=ANY)
    again = Dispatcher(store).once(same).send("a", Counter.add, 1)
    assert isinstance(again, Accepted)
    assert [recorded.id for recorded in again.events] == [first.id]


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_first_is_outermost_and_sees_what_came_of_it(store):
    seen = []
    dispatcher = Dispatcher(store, middleware=[noting("one", seen), noting("two", seen)])
    dispatcher.send("a", Counter.add, 1)
    assert seen == ["one before counter.add", "two before counter.add", "two after Accepted", "one after Accepted"]


def test_a_rule_refuses_with_its_reason_before_anything_is_loaded(store, monkeypatch):
    def small(command):
        return None if command.arguments["by"] < 10 else f"{command.arguments['by']} is too much for you"

    dispatcher = Dispatcher(store, middleware=[required(small)])
    assert isinstance(dispatcher.send("a", Counter.add, 9), Accepted)
    monkeypatch.setattr(SqlEventStore, "read_stream", None)
    refusal = dispatcher.send("a", Counter.add, by=10)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.stream, refusal.command.name) == (
        "10 is too much for you",
        "counter-a",
        "counter.add",
    )


def test_middleware_may_raise_a_refusal(store):
    def never(command, send):
        raise Refused("not on a Sunday")

    seen = []
    refusal = Dispatcher(store, middleware=[noting("outer", seen), never]).send("a", Counter.add, 1)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "not on a Sunday"
    assert seen == ["outer before counter.add", "outer after Refusal"]


def test_a_lost_race_is_decided_again_within_one_pass_of_the_middleware(store):
    seen, real = [], store.append

    class Rival:
        def append(self, stream, events, **options):
            if not seen[1:]:
                seen.append("rival")
                real(stream, [Counter.Counted(by=10)], expected=ANY)
            return real(stream, events, **options)

        read_stream = store.read_stream

    assert isinstance(Dispatcher(Rival(), middleware=[noting("m", seen)]).send("a", Counter.add, 1), Accepted)
    assert seen == ["m before counter.add", "rival", "m after Accepted"]


def test_each_command_is_logged_with_what_came_of_it_and_without_its_arguments(store):
    dispatcher = Dispatcher(store, middleware=[logged()])
    with capture_logs() as logs:
        dispatcher.send("a", Counter.add, 700)
        dispatcher.send("a", Counter.add, 700)
        with pytest.raises(WrongExpectedVersion):
            Dispatcher(Stale(store), middleware=[logged()], attempts=2).send("a", Counter.add, 1)
    logs = [log for log in logs if "command" in log]  # not those of the retries
    told = [(log["event"], log["command"], log["stream"], log["log_level"]) for log in logs]
    assert told == [
        ("command accepted", "counter.add", "counter-a", "info"),
        ("command refused", "counter.add", "counter-a", "info"),
        ("command failed", "counter.add", "counter-a", "error"),
    ]
    assert (logs[0]["version"], logs[0]["events"], logs[2]["error"]) == (0, 1, "WrongExpectedVersion")
    assert not any("by" in log or "arguments" in log for log in logs)


class Stale:
    """A store whose readers are always a version behind."""

    def __init__(self, store):
        self.append, self._store = store.append, store

    def read_stream(self, stream):
        return list(self._store.read_stream(stream))[:-1]


def test_events_carry_the_trace_of_the_span_their_command_ran_in(store):
    spans = []

    @contextmanager
    def span(command):
        spans.append((command.name, command.metadata.traceparent))
        yield TRACE

    dispatcher = Dispatcher(store, middleware=[traced(span)])
    before = Metadata(correlation_id="talk", traceparent="00-00000000000000000000000000000001-0000000000000002-01")
    dispatcher.with_metadata(before).send("a", Counter.add, 1)
    (recorded,) = store.read_stream("counter-a")
    assert spans == [("counter.add", before.traceparent)]
    assert replace(recorded.metadata, causation_id=None) == replace(before, traceparent=TRACE)


@each_row("given", ["", None, [], 0, False, "a-text", "7d0e3a3e-9d63-4a54-8f0e-7b8f1c1d2f11"])
def test_an_id_that_would_not_make_a_command_idempotent_is_refused(given):
    with pytest.raises(InvalidIdentifier, match="is no id of a command"):
        Dispatcher(MemoryEventStore()).once(given)


# ---- Commands in their caller's transaction: load, decide and append commit with the rows beside them, or not at all


def book(connection: sa.Connection, amount: int) -> None:
    connection.execute(sa.insert(LEDGER).values(amount=amount))


def test_commands_and_rows_commit_together(store: SqlEventStore) -> None:
    with store.engine.begin() as connection:
        counters = Dispatcher(store).within(connection)
        book(connection, 1)
        first, second = counters.send("a", Counter.add, 1), counters.send("a", Counter.add, 2)
        assert counters.load(Counter, "a").count == 3
        assert store.head("counter-a") is None
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert list(store.read_stream("counter-a")) == [*first.events, *second.events]
    assert amounts(store.engine) == [1]


def test_a_refusal_leaves_the_transaction_to_its_owner(store: SqlEventStore) -> None:
    with store.engine.begin() as connection:
        book(connection, 1)
        assert isinstance(Dispatcher(store).within(connection).send("a", Counter.add, 9, at_most=5), Refusal)
    assert amounts(store.engine) == [1]


def test_a_lost_race_is_the_callers_and_is_not_decided_again(store: SqlEventStore) -> None:
    decided = []

    class Slow(Counter, category="counter"):
        @command
        def wait(self) -> None:
            decided.append(self.version)
            store.append("counter-a", [Counter.Counted(by=10)], expected=ANY)
            self.emit(self.Counted(by=1))

    with store.engine.begin() as connection, pytest.raises(WrongExpectedVersion) as lost:
        Dispatcher(store).within(connection).send("a", Slow.wait)
    assert (decided, lost.value.actual) == ([-1], 0)


def test_a_command_with_an_id_is_carried_out_once_within_its_transaction(store: SqlEventStore) -> None:
    same = uuid4()
    with store.engine.begin() as connection:
        counters = Dispatcher(store).within(connection).once(same)
        sent = [counters.send("a", Counter.add, 3) for _ in range(2)]
    again = Dispatcher(store).once(same).send("a", Counter.add, 3)
    assert [getattr(result, "version", None) for result in (*sent, again)] == [0, 0, 0]


def test_no_snapshot_is_taken_of_what_may_be_rolled_back(store: SqlEventStore) -> None:
    snapshots = Snapshots(store, every=1, cached=10)
    dispatcher = Dispatcher(store, snapshots=snapshots)
    dispatcher.send("a", Counter.add, 1)
    with store.engine.connect() as connection:
        within = dispatcher.within(connection)
        assert within.load(Counter, "a").count == 1
        assert isinstance(within.send("a", Counter.add, 10), Accepted)
        with pytest.raises(DeclarationError, match="could outlive it"):
            within.take_snapshot(Counter, "a")
        connection.rollback()
    kept = store.snapshot("counter-a")
    assert kept is not None
    assert kept.version == 0
    assert dispatcher.load(Counter, "a").count == 1


def test_personal_fields_are_opened_in_the_transaction_that_made_their_key(tmp_path: Path) -> None:
    keys = MasterKeys({"one": os.urandom(32)})
    with SqlEventStore(f"sqlite:///{tmp_path / 'own.db'}", keys=keys) as store:
        store.create_tables()
        with store.engine.begin() as connection:
            within = Dispatcher(store).within(connection)
            within.send("7", Customer.register, "Ada")
            assert within.load(Customer, "7").name == "Ada"
        assert Dispatcher(store).load(Customer, "7").name == "Ada"


def test_a_handler_sends_commands_in_the_transaction_it_is_lent(store: SqlEventStore) -> None:
    @subscription("payment", group="counting", attempts=1)
    def count(paid: Payment.Received, tx: sa.Connection) -> None:
        book(tx, paid.amount)
        Dispatcher(store).within(tx).send("a", Counter.add, paid.amount)
        if paid.amount == 13:
            raise ValueError("unlucky")

    deliver(count, Payment.Received(amount=1), Payment.Received(amount=2), times=2, engine=store.engine)
    with pytest.raises(ValueError, match="unlucky"):
        deliver(count, Payment.Received(amount=13), engine=store.engine, stream_id="2")
    assert (Dispatcher(store).load(Counter, "a").count, amounts(store.engine)) == (3, [1, 2])


def test_a_store_that_takes_part_in_no_transaction_says_so(store: SqlEventStore) -> None:
    with store.engine.connect() as connection:
        dispatcher = Dispatcher(store).within(connection)
        with pytest.raises(DeclarationError, match="cannot append in its caller's transaction"):
            dispatcher.within(connection)


# ---- on asyncio


def opened(store: SqlEventStore) -> AsyncSqlEventStore:
    return AsyncSqlEventStore(f"sqlite+aiosqlite:///{store.engine.url.database}")


async def test_commands_and_rows_commit_together_on_a_loop(store: SqlEventStore) -> None:
    async with opened(store) as twin:
        async with twin.engine.begin() as connection:
            counters = AsyncDispatcher(twin).within(connection)
            await connection.execute(sa.insert(LEDGER).values(amount=1))
            first = await counters.once(uuid4()).send("a", Counter.add, 1)
            assert isinstance(first, Accepted)
            assert isinstance(await counters.send("a", Counter.add, 2, at_most=1), Refusal)
            assert (await counters.load(Counter, "a")).count == 1
            assert await twin.head("counter-a") is None
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with twin.engine.begin() as connection:
                await AsyncDispatcher(twin).within(connection).send("a", Counter.add, 2)
                raise ZeroDivisionError
    assert (list(store.read_stream("counter-a")), amounts(store.engine)) == (list(first.events), [1])


async def test_streams_on_a_loop_are_read_with_what_the_transaction_has_appended(store: SqlEventStore) -> None:
    async with opened(store) as twin, twin.engine.begin() as connection:
        streams = twin.within(connection)
        result = await streams.append("counter-a", [Counter.Counted(by=1)] * 2, expected=NO_STREAM)
        seen = [recorded.id async for recorded in streams.read_stream("counter-a", backwards=True)]
        assert seen == [*reversed(result.ids)]
        found = await streams.find(result.ids[0])
        assert found is not None
        assert (await streams.head("counter-a"), await twin.head("counter-a")) == (1, None)


def test_the_streams_of_a_transaction_have_the_same_methods_everywhere() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {name: list(inspect.signature(getattr(kind, name)).parameters) for name in names}

    names = [name for name, one in vars(Streams).items() if inspect.isfunction(one) and not name.startswith("_")]
    assert len(names) == 5
    assert methods(Streams) == methods(JoinedStreams) == methods(AsyncJoinedStreams)
