"""The testing kit's given, when, then: what it accepts, and each thing it has to find."""

from __future__ import annotations

from dataclasses import field

import pytest

from eventstore import Aggregate, command, event
from eventstore.errors import InvalidEventData, UnknownEventType
from eventstore.testing.scenario import given
from tests.unit.eventstore.counter import Counter

THREE = Counter.Counted(by=3)


def test_a_command_leads_to_its_events_and_its_state():
    outcome = given(Counter, THREE, THREE).when(Counter.add, 4, at_most=10)
    outcome.then(Counter.Counted(by=4)).then_state(count=10, version=2, id="1")


def test_a_command_that_changes_nothing_leads_to_no_event():
    given(Counter, THREE).when(Counter.add, 0).then().then_state(count=3)


def test_a_refused_command_says_why_and_leaves_the_past():
    given(Counter, THREE, id="a").when(Counter.add, 4, at_most=6).then_refused("more than 6").then_state(
        count=3, id="a"
    )


def test_each_when_begins_at_the_same_past():
    scenario = given(Counter, THREE)
    for _ in range(2):
        scenario.when(Counter.add, 1).then_state(count=4)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (lambda: given(Counter).when(Counter.add, 1).then(), "expected: \\[\\]"),
        (lambda: given(Counter).when(Counter.add, 1).then(Counter.Counted(by=2)), r"found: .*by=1"),
        (lambda: given(Counter).when(Counter.add, 9, at_most=1).then(), "refused: 0 and 9 are more than 1"),
        (lambda: given(Counter).when(Counter.add, 1).then_refused(), r"accepted: .*by=1"),
        (lambda: given(Counter).when(Counter.add, 9, at_most=1).then_refused("a full moon"), "expected: a full moon"),
        (lambda: given(Counter).when(Counter.add, 1).then_state(count=2), r"found: +{'count': 1}"),
    ],
    ids=["too much", "another event", "refused", "accepted", "another reason", "another state"],
)
def test_what_is_not_so_is_shown(claim, words):
    with pytest.raises(AssertionError, match=words):
        claim()


class Forgetful(Aggregate):
    names: list[str] = field(default_factory=list)
    count: int = 0

    @event
    class Named:
        name: str

    @command
    def name(self, name: str) -> None:
        self.count += 1
        self.emit(self.Named(name=name))

    def on_named(self, e: Named) -> None:
        self.names.append(e.name)


def test_a_command_that_changes_the_state_by_itself_is_found():
    with pytest.raises(AssertionError, match="what the events make of the state"):
        given(Forgetful).when(Forgetful.name, "Ada")


def test_an_event_that_no_store_would_take_or_that_is_another_s_is_refused():
    with pytest.raises(InvalidEventData, match="by"):
        given(Counter, Counter.Counted(by="much")).state()
    with pytest.raises(UnknownEventType):
        given(Counter, Forgetful.Named(name="Ada")).state()
