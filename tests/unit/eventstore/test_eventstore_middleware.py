"""Middleware stands around every command: in order, once, whatever becomes of the command."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from eventstore import ANY, Accepted, Dispatcher, Metadata, Refusal, SqlEventStore
from eventstore.aggregates.middleware import logged, required, traced
from eventstore.errors import Refused, WrongExpectedVersion
from tests.unit.eventstore.counter import Counter

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def noting(name, into):
    def middleware(command, send):
        into.append(f"{name} before {command.name}")
        result = send(command)
        into.append(f"{name} after {type(result).__name__}")
        return result

    return middleware


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
