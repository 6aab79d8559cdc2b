"""Programs that deliver events with personal fields take the keys of their environment."""

from __future__ import annotations

from threading import Event, Timer
from typing import Annotated

import pytest

from eventstore import Aggregate, Dispatcher, MasterKeys, Personal, SqlEventStore, command, event, subscription
from eventstore.processes import Process, starts
from factfold.cli.service import processes
from factfold.development import from_store
from tests.commands import factfold

MASTER = f"a:{'A' * 43}="
SECONDS = 3


class Guest(Aggregate, category="greeted_guest"):
    @event
    class Booked:
        name: Annotated[str, Personal(erased="(erased)")]

    @command
    def book(self, name: str) -> None:
        self.emit(self.Booked(name=name))


class Greeting(Process, sends=[Guest]):
    @starts(Guest.Booked)
    def booked(self, given: Guest.Booked) -> None:
        if not self.id.endswith("-again"):
            self.send(f"{self.id}-again", Guest.book, name="another")


GREETED: list[str] = []


@subscription(Guest, group="greeting")
def greet(given: Guest.Booked) -> None:
    GREETED.append(given.name)


@pytest.fixture
def store(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    for name, value in (("STORE_URL", url), ("MASTER_KEYS", MASTER)):
        monkeypatch.setenv(f"FACTFOLD_{name}", value)
    with SqlEventStore(url, keys=MasterKeys.parse(MASTER)) as opened:
        opened.create_tables()
        Dispatcher(opened).send("1", Guest.book, name="Ann")
        yield opened


def soon():
    stop = Event()
    Timer(SECONDS, stop.set).start()
    return stop


def test_a_command_of_a_process_seals_personal_fields(store, monkeypatch):
    monkeypatch.setattr(processes, "stop_on_signal", soon)
    done = factfold("processes", "run", f"{__name__}:Greeting")
    assert done.output.endswith("1 commands sent, 0 timers fired, 0 failures\n")
    (sent,) = store.read_stream("greeted_guest-1-again")
    assert sent.data["name"] == "another"


def test_a_handler_that_up_delivers_to_from_the_store_gets_them_open(store):
    from_store.run("tests.unit.test_personal_commands", f"{__name__}:greet", stop=soon())
    assert GREETED == ["Ann"]
