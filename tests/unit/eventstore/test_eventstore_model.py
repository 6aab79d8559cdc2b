"""T14: histories nobody would write by hand, on SQLite, against a model of lists.

Appends under every kind of expectation, to several streams at once, repeated by id; streams deleted, archived and taken
out again; reads from all sides, and loads from aggregate snapshots; a subscriber whose handler may fail; a fold that is
kept, and one made anew. The process may die between any two calls, and within those that change something: before the
commit, or behind it before anybody hears of it; then whoever called does it again.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from eventstore import (
    ANY,
    NO_STREAM,
    STREAM_EXISTS,
    Aggregate,
    NewEvent,
    SqlEventStore,
    StreamAppend,
    Subscriber,
    event,
    subscription,
)
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import EventIdTaken, StreamArchived, StreamDeleted, WrongExpectedVersion
from eventstore.identifiers import StreamName
from eventstore.snapshots import Snapshots
from tests.ledger import LEDGER, METADATA, amounts


class Purse(Aggregate):
    sum: int = 0

    @event
    class Filled:
        amount: int

    def on_filled(self, e: Filled) -> None:
        self.sum += e.amount


STREAMS = st.sampled_from(["purse-a", "purse-b", "purse-c", "purse-d"])
AMOUNTS = st.lists(st.integers(-5, 1_000), min_size=1, max_size=4)
EXPECTED = st.sampled_from([ANY, NO_STREAM, STREAM_EXISTS, "head", "head", "head", "behind", "ahead"])
DEATHS = st.sampled_from([None, None, None, "within", "before commit", "after commit"])
Parts = list[tuple[str, list[tuple[uuid.UUID, int]]]]
REFUSALS = (WrongExpectedVersion, StreamDeleted, StreamArchived, EventIdTaken)


class Died(Exception):
    """The process is gone in the middle of a call."""


class Death:
    """Comes to a store within its next change, before that is committed, or before anybody hears that it was."""

    def __init__(self, engine: sa.Engine) -> None:
        self.moment: str | None = None
        sa.event.listen(engine, "before_cursor_execute", self._before)
        sa.event.listen(engine, "after_cursor_execute", self._after)

    def _before(self, connection: Any, cursor: Any, statement: str, *others: Any) -> None:
        self._come(self.moment == "before commit" and statement == "commit")

    def _after(self, connection: Any, cursor: Any, statement: str, *others: Any) -> None:
        changes = statement.startswith(("INSERT", "DELETE"))
        self._come((self.moment == "within" and changes) or (self.moment == "after commit" and statement == "commit"))

    def _come(self, now: bool) -> None:
        if now:
            self.moment = None
            raise Died


class Handler:
    """Books every amount in the service's ledger, effectively once; fails when it is told to."""

    def __init__(self, group: str = "books") -> None:
        self.fails = 0
        self.declared: Any = subscription("purse", group=group, batch=3, backoff=0.0, attempts=100)(self._handler())

    def _handler(self) -> Any:
        def book(event: Purse.Filled, tx: sa.Connection) -> None:
            tx.execute(sa.insert(LEDGER).values(amount=event.amount))
            if self.fails:
                self.fails -= 1
                raise ValueError("not now")

        return book


class Model:
    """Streams are lists of (id, amount); the log is the order of appends."""

    def __init__(self) -> None:
        self.streams: dict[str, list[tuple[uuid.UUID, int]]] = defaultdict(list)
        self.log: list[tuple[str, int, int]] = []
        self.appends: list[Parts] = []
        self.snapshots: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.archived: set[str] = set()

    def head(self, stream: str) -> int:
        return len(self.streams[stream]) - 1

    def amounts(self, stream: str) -> list[int]:
        return [amount for _, amount in self.streams[stream]]

    def meets(self, stream: str, expected: Any) -> bool:
        head = self.head(stream)
        return {ANY: True, NO_STREAM: head < 0, STREAM_EXISTS: head >= 0}.get(expected, head == expected)

    def refusal(self, stream: str, expected: Any) -> type[Exception] | None:
        if stream in self.deleted or stream in self.archived:
            return StreamDeleted if stream in self.deleted else StreamArchived
        return None if self.meets(stream, expected) else WrongExpectedVersion

    def append(self, parts: Parts) -> None:
        for stream, events in parts:
            for id, amount in events:
                self.streams[stream].append((id, amount))
                self.log.append((stream, self.head(stream), amount))
        self.appends.append(parts)

    def delete(self, stream: str) -> None:
        self.deleted.add(stream)
        self.archived.discard(stream)
        self.streams.pop(stream)
        self.snapshots.pop(stream, None)

    def archive(self, stream: str) -> None:
        self.archived.add(stream)
        self.snapshots.pop(stream, None)

    def after(self, place: int, limit: int | None) -> tuple[int, list[tuple[str, int, int]]]:
        """What a reader sees who has come so far, and how far it has come then."""
        there = [n for n in range(place, len(self.log)) if self.log[n][0] not in self.deleted][:limit]
        return (there[-1] + 1 if there else place), [self.log[n] for n in there]


class Histories(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"sqlite:///{Path(self.folder.name)}/purse.db"
        self.model, self.kept = Model(), {}
        self.checkpoint: Any = None
        self.followed, self.handled = 0, 0
        self.booked: list[int] = []
        self.handler = Handler()
        self.open()

    def open(self) -> None:
        self.store = SqlEventStore(self.url)
        self.store.create_tables()
        self.death = Death(self.store.engine)
        METADATA.create_all(self.store.engine)
        source = StoreSource(self.store, self.handler.declared, category="purse")
        self.subscriber = Subscriber(self.handler.declared, source, engine=self.store.engine)

    def outcome(self, call: Callable[[Any], Any], dies: str | None = None) -> Any:
        """The outcome of a call: an answer or an error.

        Where the process dies in it, whoever called does it again in the next one, and the answer is that one's.
        """
        self.death.moment = dies
        try:
            outcome = answer(call, self.store)
        except Died:
            self.crash()
            outcome = answer(call, self.store)
        self.death.moment = None
        return outcome

    def expectation(self, stream: str, chosen: Any) -> Any:
        if chosen not in ("head", "behind", "ahead"):
            return chosen
        head = self.model.head(stream) + {"head": 0, "behind": -1, "ahead": 1}[chosen]
        return NO_STREAM if head < 0 else head

    @rule(parts=st.dictionaries(STREAMS, st.tuples(AMOUNTS, EXPECTED), min_size=1, max_size=3), dies=DEATHS)
    def append(self, parts: dict[str, tuple[list[int], Any]], dies: str | None) -> None:
        new = [(stream, [(uuid.uuid4(), amount) for amount in amounts]) for stream, (amounts, _) in parts.items()]
        expected = {stream: self.expectation(stream, chosen) for stream, (_, chosen) in parts.items()}
        outcome = self.outcome(lambda store: self.appended(store, new, expected), dies)
        refusals = [refusal for stream in parts if (refusal := self.model.refusal(stream, expected[stream]))]
        if refusals:
            assert outcome[0] is refusals[0]
            return
        heads = [(stream, self.model.head(stream) + 1, len(events)) for stream, events in new]
        assert outcome == [(stream, range(first, first + count)) for stream, first, count in heads]
        self.model.append(new)

    def appended(self, store: Any, parts: Parts, expected: dict[str, Any]) -> Any:
        """Append events under their ids, by which it can be repeated."""
        appends = [StreamAppend(s, [_event(*e) for e in events], expected[s]) for s, events in parts]
        return [(r.stream, r.versions) for r in store.append_batch(appends)]

    @precondition(lambda self: self.model.appends)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        parts = data.draw(st.sampled_from(self.model.appends))
        outcome = self.outcome(lambda store: self.appended(store, parts, {stream: ANY for stream, _ in parts}))
        refusals = [refusal for stream, _ in parts if (refusal := self.model.refusal(stream, ANY))]
        if StreamDeleted in refusals:  # what is archived only would have the results of the first append
            assert outcome[0] is refusals[0]
            return
        for (stream, versions), (_, events) in zip(outcome, parts, strict=True):
            assert [self.model.streams[stream][version] for version in versions] == events

    @rule(stream=STREAMS, chosen=EXPECTED, dies=DEATHS)
    def delete(self, stream: str, chosen: Any, dies: str | None) -> None:
        expected, there = self.expectation(stream, chosen), self.model.head(stream) >= 0
        outcome = self.outcome(lambda store: bool(store.delete_stream(stream, expected=expected) or True), dies)
        if stream in self.model.deleted or self.model.meets(stream, expected):
            assert outcome is True
        else:
            assert outcome == (WrongExpectedVersion, self.model.head(stream) if there else None)
        if outcome is True and there:
            self.model.delete(stream)

    @rule(stream=STREAMS, chosen=EXPECTED, dies=DEATHS)
    def archive(self, stream: str, chosen: Any, dies: str | None) -> None:
        expected = self.expectation(stream, chosen)
        outcome = self.outcome(lambda store: store.archive_stream(stream, expected=expected), dies)
        if stream in self.model.deleted:
            assert outcome[0] is StreamDeleted
        elif self.model.head(stream) < 0 or not self.model.meets(stream, expected):
            assert outcome[0] is WrongExpectedVersion
        else:
            assert outcome is None
            self.model.archive(stream)

    @rule(stream=STREAMS, dies=DEATHS)
    def unarchive(self, stream: str, dies: str | None) -> None:
        self.outcome(lambda store: store.unarchive_stream(stream), dies)
        self.model.archived.discard(stream)

    @rule(stream=STREAMS, upto=st.integers(0, 6))
    def take_snapshot(self, stream: str, upto: int) -> None:
        """Of any version: a process that is behind may be the last one to take one."""
        if self.model.head(stream) < 0:
            return
        state = Purse.fold(Purse(stream.removeprefix("purse-")), self.store.read_stream(stream, to_version=upto))
        Snapshots(self.store).take(state)
        version = min(upto, self.model.head(stream))
        self.model.snapshots[stream] = max(version, self.model.snapshots.get(stream, -1))

    @rule(stream=STREAMS)
    def load(self, stream: str) -> None:
        """From the aggregate snapshot, where there is one, and the events behind it."""
        of_model = self.model.amounts(stream)
        name = StreamName.parse(stream)
        state = Snapshots(self.store).latest(Purse, name) or Purse(name.id)
        assert state.version == self.model.snapshots.get(stream, -1)
        assert state.sum == sum(of_model[: state.version + 1])
        Purse.fold(state, self.store.read_stream(stream, from_version=state.version + 1))
        assert (state.sum, state.version) == (sum(of_model), len(of_model) - 1)

    @rule(
        stream=STREAMS, low=st.integers(0, 6), size=st.integers(0, 6), backwards=st.booleans(), limit=st.integers(0, 5)
    )
    def read(self, stream: str, low: int, size: int, backwards: bool, limit: int) -> None:
        expected = list(enumerate(self.model.amounts(stream)))[low : low + size + 1]
        expected = (expected[::-1] if backwards else expected)[:limit]
        found = self.store.read_stream(
            stream, from_version=low, to_version=low + size, backwards=backwards, limit=limit
        )
        assert [(recorded.version, recorded.data["amount"]) for recorded in found] == expected

    @rule(limit=st.none() | st.integers(1, 5))
    def follow(self, limit: int | None) -> None:
        self.followed, expected = self.model.after(self.followed, limit)
        seen = []
        for recorded in self.store.read_all(after=self.checkpoint, limit=limit):
            seen.append((recorded.stream, recorded.version, recorded.data["amount"]))
            kept = self.kept.setdefault(recorded.stream, Purse(recorded.stream.removeprefix("purse-")))
            Purse.fold(kept, [recorded])
            self.checkpoint = recorded.position
        assert seen == expected

    @rule(fails=st.integers(0, 2))
    def subscribe(self, fails: int) -> None:
        self.handler.fails = fails
        self.subscriber.run_once(timeout=0)
        self.handler.fails = 0
        new = amounts(self.store.engine)[len(self.booked) :]
        self.handled, expected = self.model.after(self.handled, len(new))
        assert new == [amount for _, _, amount in expected]
        self.booked += new

    @rule()
    def crash(self) -> None:
        """The process dies and another begins: what was in memory is gone, what was committed is not."""
        self.store.close()
        self.open()

    @invariant()
    def nothing_is_handled_twice_or_taken_back(self) -> None:
        if hasattr(self, "store"):
            assert amounts(self.store.engine) == self.booked

    @invariant()
    def the_archive_is_what_was_put_there(self) -> None:
        if hasattr(self, "store"):
            assert list(self.store.archived_streams()) == sorted(self.model.archived)

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self.everything_agrees()
        finally:
            self.subscriber.close()
            self.store.close()
            self.folder.cleanup()

    def everything_agrees(self) -> None:
        """Live = rebuilt = model, and every event that is still there was handled."""
        self.follow(None)
        while self.model.after(self.handled, None)[1]:
            before = len(self.booked)
            self.subscribe(0)
            assert len(self.booked) > before
        for stream in self.kept.keys() - self.model.deleted:
            kept = self.kept[stream]
            rebuilt = Purse.fold(Purse(kept.id), self.store.read_stream(stream))
            assert (kept.sum, kept.version) == (rebuilt.sum, rebuilt.version)
            assert kept.sum == sum(self.model.amounts(stream))


def answer(call: Callable[[Any], Any], store: Any) -> Any:
    """What a store answers, or how it refuses."""
    try:
        return call(store)
    except REFUSALS as error:
        return type(error), getattr(error, "actual", None)


def _event(id: uuid.UUID, amount: int) -> NewEvent:
    return NewEvent(Purse.Filled(amount=amount), id=id)


class ForgetsItsPlace(Histories):
    """A planted fault: after a crash the subscriber is another group, and everything comes to it again."""

    @rule()
    def crash(self) -> None:
        self.handler = Handler(group=uuid.uuid4().hex)
        super().crash()


class MeetsEveryExpectation(Histories):
    """A planted fault: a version that was expected and is not there does not matter."""

    def open(self) -> None:
        super().open()
        append_batch = self.store.append_batch
        self.store.append_batch = lambda appends: append_batch([replace(a, expected=ANY) for a in appends])  # type: ignore


class RepeatsUnderOtherIds(Histories):
    """A planted fault: whoever gets no answer appends what it wants again, and not the same events."""

    def appended(self, store: Any, parts: Parts, expected: dict[str, Any]) -> Any:
        new = [(stream, [(uuid.uuid4(), amount) for _, amount in events]) for stream, events in parts]
        return super().appended(store, new, expected)


class DeletesEventsOnly(Histories):
    """A planted fault: the events of a deleted stream are gone, and nothing says that it was."""

    def open(self) -> None:
        super().open()
        delete_stream = self.store.delete_stream

        def delete(stream: str, *, expected: Any) -> int:
            deleted, events = delete_stream(stream, expected=expected), self.store.tables.events
            with self.store.engine.begin() as connection:
                connection.execute(sa.delete(events).where(events.c.stream == stream, events.c.payload.is_(None)))
            return deleted

        self.store.delete_stream = delete  # type: ignore


PLANTED = [ForgetsItsPlace, MeetsEveryExpectation, RepeatsUnderOtherIds, DeletesEventsOnly]


@pytest.mark.faults
@pytest.mark.parametrize("faulty", PLANTED)
def test_the_model_sees_a_planted_fault(faulty: type[Histories]) -> None:
    """The same histories each time, as long as the same modules are imported: Hypothesis draws numbers from their text.

    So there are far more of them than it takes: whether chance finds the fault is not what is tested.
    """
    with pytest.raises(AssertionError):
        run_state_machine_as_test(faulty, settings=_UNTIL_FOUND)


_EXAMPLES = 15 + int(os.environ.get("FACTFOLD_EXAMPLES", "0"))
_SETTINGS = settings(max_examples=_EXAMPLES, stateful_step_count=25, deadline=None)
_UNTIL_FOUND = settings(
    max_examples=1_000, stateful_step_count=50, deadline=None, derandomize=True, report_multiple_bugs=False,
    phases=[Phase.generate],
)  # fmt: skip
TestHistories = pytest.mark.kills(Histories.TestCase)
TestHistories.settings = _SETTINGS
