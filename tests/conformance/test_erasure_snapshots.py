"""No aggregate snapshot outlives an erasure, and none holds in clear what the events hold sealed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import pytest
from structlog.testing import capture_logs

from eventstore import Aggregate, Dispatcher, MasterKeys, MemoryEventStore, Personal, SqlEventStore, command, event
from eventstore.errors import DeclarationError
from eventstore.snapshots import AggregateSnapshot, Snapshots, shape_of


class Member(Aggregate):
    name: str = ""
    visits: int = 0

    @event
    class Joined:
        name: Annotated[str, Personal(erased="(erased)")]

    @event
    class Visited:
        door: str

    @command
    def join(self, name: str) -> None:
        self.emit(self.Joined(name=name))

    @command
    def visit(self, meanwhile: Callable[[], object]) -> None:
        meanwhile()
        self.emit(self.Visited(door="north"))

    def on_joined(self, e: Joined) -> None:
        self.name = e.name

    def on_visited(self, e: Visited) -> None:
        self.visits += 1


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryEventStore()
        return
    with SqlEventStore(f"sqlite:///{tmp_path}/club.db", keys=MasterKeys({"one": os.urandom(32)})) as opened:
        opened.create_tables()
        yield opened


def test_a_command_under_way_across_an_erasure_leaves_nothing_of_the_person(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, every=1, cached=10))
    dispatcher.send("7", Member.join, "Ada")
    dispatcher.send("7", Member.visit, lambda: store.erase("7"))
    kept = store.snapshot("member-7")
    assert kept is None or b"Ada" not in kept.payload
    assert dispatcher.load(Member, "7").name == "(erased)"
    assert dispatcher.load(Member, "7").visits == 1


def test_no_snapshot_of_an_aggregate_with_personal_events_is_kept_and_a_warning_says_so_once(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store, every=2))
    with capture_logs() as logged:
        dispatcher.send("7", Member.join, "Ada")
        for _ in range(4):
            dispatcher.send("7", Member.visit, lambda: None)
    assert store.snapshot("member-7") is None
    assert [entry["aggregate"] for entry in logged if "no aggregate snapshots" in entry["event"]] == ["Member"]
    assert "Ada" not in str(logged)


def test_one_that_is_asked_for_is_refused(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store))
    dispatcher.send("7", Member.join, "Ada")
    with pytest.raises(DeclarationError, match="would outlive an erasure") as refused:
        dispatcher.take_snapshot(Member, "7")
    assert "Ada" not in str(refused.value)
    assert store.snapshot("member-7") is None


def test_one_that_an_earlier_release_kept_is_not_loaded_and_goes_with_the_erasure(store):
    dispatcher = Dispatcher(store, snapshots=Snapshots(store))
    dispatcher.send("7", Member.join, "Ada")
    state = dispatcher.load(Member, "7")
    state.name = "Ada of the snapshot"
    store.save_snapshot(AggregateSnapshot("member-7", 0, shape_of(Member).encode(state)))
    assert dispatcher.load(Member, "7").name == "Ada"
    assert store.erase("7").snapshots == 1
    assert store.snapshot("member-7") is None
