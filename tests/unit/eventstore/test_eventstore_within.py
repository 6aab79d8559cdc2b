"""Commands in their caller's transaction: load, decide and append commit with the rows beside them, or not at all."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from eventstore import (
    ANY,
    NO_STREAM,
    Accepted,
    AsyncDispatcher,
    AsyncSqlEventStore,
    Dispatcher,
    MasterKeys,
    MemoryEventStore,
    Refusal,
    SqlEventStore,
    command,
    subscription,
)
from eventstore.backends.sql.async_store import AsyncJoinedStreams
from eventstore.backends.sql.lending import JoinedStreams
from eventstore.errors import DeclarationError, WrongExpectedVersion
from eventstore.snapshots import Snapshots
from eventstore.store import Streams
from eventstore.testing.delivering import deliver
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.counter import Counter
from tests.unit.eventstore.customer import Customer


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
        for dispatcher in (Dispatcher(MemoryEventStore()), Dispatcher(store).within(connection)):
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


async def test_a_lost_race_is_the_callers_on_a_loop_too(store: SqlEventStore) -> None:
    sent = []

    async def overtaking(message: Any, send: Any) -> Any:
        sent.append(message)
        return await send(message)

    class Slow(Counter, category="counter"):
        @command
        def wait(self) -> None:
            store.append("counter-a", [Counter.Counted(by=10)], expected=ANY)
            self.emit(self.Counted(by=1))

    async with opened(store) as twin, twin.engine.connect() as connection:
        with pytest.raises(WrongExpectedVersion):
            await AsyncDispatcher(twin, middleware=[overtaking]).within(connection).send("a", Slow.wait)
    assert (len(sent), store.head("counter-a")) == (1, 0)


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
