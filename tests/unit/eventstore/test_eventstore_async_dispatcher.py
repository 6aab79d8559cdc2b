"""Commands sent on an event loop: many at once, through middleware of either kind."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from eventstore import ANY, Accepted, AsyncDispatcher, AsyncSqlEventStore, Dispatcher, Metadata, Refusal
from eventstore.aggregates.dispatcher import logged, required
from eventstore.errors import DeclarationError, Refused, WrongExpectedVersion
from eventstore.snapshots import Snapshots
from tests.unit.eventstore.counter import Counter


@pytest.fixture
def opened(tmp_path):
    """A store whose tables are there."""

    @asynccontextmanager
    async def opened():
        async with AsyncSqlEventStore(f"sqlite:///{tmp_path}/events.db") as store:
            await store.create_tables()
            yield store

    return opened


async def test_a_command_is_accepted_with_what_was_recorded_or_refused_with_its_reason(opened):
    async with opened() as store:
        dispatcher = AsyncDispatcher(store)
        accepted = await dispatcher.with_metadata(Metadata(correlation_id="order 7")).send("a", Counter.add, 3)
        assert isinstance(accepted, Accepted)
        assert [event async for event in store.read_stream("counter-a")] == list(accepted.events)
        assert accepted.events[0].metadata.correlation_id == "order 7"
        refusal = await dispatcher.send("a", Counter.add, by=3, at_most=2)
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "3 and 3 are more than 2"
        assert (await dispatcher.send_or_raise("a", Counter.add, 1)).version == 1
        with pytest.raises(Refused, match="4 and 3 are more than 2"):
            await dispatcher.send_or_raise("a", Counter.add, by=3, at_most=2)


async def test_commands_for_one_aggregate_at_once_are_all_carried_out(opened):
    async with opened() as store:
        dispatcher = AsyncDispatcher(store, attempts=100)
        results = await asyncio.gather(*(dispatcher.send("a", Counter.add, 1) for _ in range(12)))
        assert sorted(result.version for result in results) == list(range(12))
        assert (await dispatcher.load(Counter, "a")).count == 12


async def test_a_race_that_is_lost_again_and_again_is_an_error(opened, monkeypatch):
    async with opened() as store:
        real = store.sync_store.append

        def raced(stream, events, **options):
            real(stream, [Counter.Counted(by=1)], expected=ANY)
            return real(stream, events, **options)

        monkeypatch.setattr(store.sync_store, "append", raced)
        with pytest.raises(WrongExpectedVersion):
            await AsyncDispatcher(store, attempts=3).send("a", Counter.add, 1)
        assert await store.head("counter-a") == 2


async def test_while_a_lost_race_waits_other_tasks_work(opened, monkeypatch):
    """Three attempts wait for some milliseconds; the pause of the synchronous dispatcher would be the loop's."""
    slept, loop, pause = [], threading.get_ident(), time.sleep

    def sleep(seconds):
        if threading.get_ident() == loop:
            slept.append(seconds)
        else:  # a thread that an earlier test left, such as Spark's
            pause(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    async with opened() as store:
        real, lost = store.sync_store.append, []

        def raced(stream, events, **options):
            if len(lost) < 3:
                lost.append(real(stream, [Counter.Counted(by=1)], expected=ANY))
            return real(stream, events, **options)

        monkeypatch.setattr(store.sync_store, "append", raced)
        assert (await AsyncDispatcher(store).send("a", Counter.add, 1)).version == 3
    assert slept == []


async def test_the_planted_fault_is_seen_the_synchronous_pause_keeps_the_loop(opened, monkeypatch):
    monkeypatch.setattr("eventstore.async_dispatcher._Waiting", Dispatcher)
    with pytest.raises(AssertionError, match=r"assert \[0\."):
        await test_while_a_lost_race_waits_other_tasks_work(opened, monkeypatch)


async def test_a_command_with_an_id_is_carried_out_once(opened):
    async with opened() as store:
        once = AsyncDispatcher(store).once(uuid4())
        results = await asyncio.gather(*(once.send("a", Counter.add, 3) for _ in range(8)))
        assert len({result.events[0].id for result in results}) == 1
        assert await store.head("counter-a") == 0


async def test_snapshots_are_taken_and_loaded_from(opened, monkeypatch):
    async with opened() as store:
        dispatcher = AsyncDispatcher(store, snapshots=Snapshots(store.sync_store, every=2))
        for _ in range(3):
            await dispatcher.send("a", Counter.add, 1)
        assert (await store.snapshot("counter-a")).version == 1
        assert (await dispatcher.take_snapshot(Counter, "a")).version == 2
        assert (await dispatcher.load(Counter, "a")).count == 3
        with pytest.raises(DeclarationError, match="takes no aggregate snapshots"):
            await AsyncDispatcher(store).take_snapshot(Counter, "a")


def noting(name, into):
    def middleware(command, send):
        into.append(f"{name} before")
        result = send(command)
        into.append(f"{name} after {type(result).__name__}")
        return result

    return middleware


def noting_later(name, into):
    async def middleware(command, send):
        into.append(f"{name} before")
        await asyncio.sleep(0)
        result = await send(command)
        into.append(f"{name} after {type(result).__name__}")
        return result

    return middleware


@pytest.mark.parametrize(
    ("one", "two"), [(noting, noting_later), (noting_later, noting), (noting, noting), (noting_later, noting_later)]
)
async def test_middleware_of_either_kind_stands_around_the_other(opened, one, two):
    seen = []
    async with opened() as store:
        dispatcher = AsyncDispatcher(store, middleware=[one("one", seen), two("two", seen)])
        assert (await dispatcher.send("a", Counter.add, 1)).version == 0
        assert seen == ["one before", "two before", "two after Accepted", "one after Accepted"]
        seen.clear()
        assert isinstance(await dispatcher.send("a", Counter.add, 1, at_most=1), Refusal)
        assert seen == ["one before", "two before", "two after Refusal", "one after Refusal"]


async def test_asynchronous_middleware_refuses_by_an_error_too(opened):
    class Closed:
        async def __call__(self, command, send):
            raise Refused("not on a Sunday")

    seen = []
    async with opened() as store:
        dispatcher = AsyncDispatcher(store, middleware=[noting_later("outer", seen), Closed()])
        assert (await dispatcher.send("a", Counter.add, 1)).reason == "not on a Sunday"
        assert seen == ["outer before", "outer after Refusal"]


async def test_the_middleware_that_comes_with_the_package_serves_both(opened):
    async with opened() as store:
        dispatcher = AsyncDispatcher(store, middleware=[logged(), required(lambda command: "no")])
        assert (await dispatcher.send("a", Counter.add, 1)).reason == "no"


async def test_while_middleware_waits_other_commands_are_carried_out(opened):
    going_on = asyncio.Event()

    async def first(command, send):
        await going_on.wait()
        return await send(command)

    async with opened() as store:
        waiting = asyncio.create_task(AsyncDispatcher(store, middleware=[first]).send("a", Counter.add, 1))
        assert (await AsyncDispatcher(store).send("a", Counter.add, 1)).version == 0
        going_on.set()
        assert (await waiting).version == 1


async def test_a_command_that_is_cancelled_in_middleware_is_not_carried_out(opened):
    begun = asyncio.Event()

    async def hang(command, send):
        begun.set()
        await asyncio.sleep(3600)
        return await send(command)

    async with opened() as store:
        task = asyncio.create_task(AsyncDispatcher(store, middleware=[hang]).send("a", Counter.add, 1))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.head("counter-a") is None
        assert store.engine.pool.checkedout() == 0


def test_every_method_has_its_twin_with_the_same_parameters():
    def methods(kind):
        own = {name: one for name, one in vars(kind).items() if inspect.isfunction(one) and not name.startswith("_")}
        return {name: list(inspect.signature(one).parameters) for name, one in own.items()}

    assert methods(AsyncDispatcher) == methods(Dispatcher)
    assert list(inspect.signature(AsyncDispatcher).parameters) == list(inspect.signature(Dispatcher).parameters)
