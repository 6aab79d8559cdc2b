"""An erasure by the command line, and commands with personal fields."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer
from typing import Annotated

import pytest
from typer.testing import Result

from eventstore import ANY, Aggregate, Dispatcher, MasterKeys, Personal, SqlEventStore, command, event, subscription
from eventstore.backends.sql.database import Database
from eventstore.errors import DeclarationError, KeysMissing, NotFound
from eventstore.processes import Process, starts
from factfold.cli.service import processes
from factfold.development import from_store
from tests.commands import factfold
from tests.vault import Vault

KEY = os.urandom(32)
MASTER = MasterKeys({"one": KEY})

vault = Vault()
Vaults = Vault


class Guest(Aggregate):
    @event
    class Invited:
        name: Annotated[str, Personal(erased="(erased)")]


@pytest.fixture
def elsewhere(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlEventStore]:
    """A store whose keys are in the vault of this module."""
    monkeypatch.setitem(globals(), "vault", Vault())
    with SqlEventStore(url, keys=vault) as store:
        store.create_tables()
        store.append("guest-1", [Guest.Invited(name="Ada")], expected=ANY)
        yield store


def run(*words: str, **environment: str) -> Result:
    return factfold(*words, env=environment)


def names(store: SqlEventStore) -> list[str]:
    return [recorded.data["name"] for recorded in store.read_all()]


def named(what: str) -> str:
    return f"{__name__}:{what}"


def test_an_erasure_that_destroys_nothing_because_keys_are_elsewhere_fails(elsewhere: SqlEventStore, url: str) -> None:
    done = run("erase", "1", "--store-url", url, "--yes")
    assert done.exit_code == 1
    assert isinstance(done.exception, KeysMissing)
    assert "--key-store" in done.exception.remedy
    assert names(elsewhere) == ["Ada"]


def test_the_key_store_is_named(elsewhere: SqlEventStore, url: str) -> None:
    done = run("erase", "1", "--store-url", url, "--yes", "--json", "--key-store", named("vault"))
    assert (done.exit_code, json.loads(done.output)["keys"]) == (0, 1)
    assert names(elsewhere) == ["(erased)"]
    assert run("erase", "1", "--store-url", url, "--yes", "--key-store", named("vault")).exit_code == 0


def test_a_mistyped_subject_is_an_error(elsewhere: SqlEventStore, url: str) -> None:
    done = run("erase", "11", "--store-url", url, "--yes", "--key-store", named("vault"))
    assert (done.exit_code, type(done.exception), done.exception.code) == (1, NotFound, "subject-unknown")
    assert "'11'" in str(done.exception)


@pytest.mark.parametrize("what", ["Vaults", "KEY", "nothing", ""])
def test_what_is_no_key_store_is_refused(elsewhere: SqlEventStore, url: str, what: str) -> None:
    done = run("erase", "1", "--store-url", url, "--yes", "--key-store", named(what))
    assert isinstance(done.exception, DeclarationError)
    assert names(elsewhere) == ["Ada"]


def test_an_erasure_that_is_repeated_is_no_failure_and_one_of_nobody_if_that_is_allowed(url: str) -> None:
    with SqlEventStore(url, keys=MASTER) as store:
        store.create_tables()
        store.append("guest-1", [Guest.Invited(name="Ada")], expected=ANY)
    for words in (["1"], ["1"], ["nobody", "--allow-unknown"]):
        assert run("erase", *words, "--store-url", url, "--yes").exit_code == 0


def test_what_keeps_former_rows_is_told_and_then_what_is_out_of_reach(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqlEventStore(url) as store:
        store.create_tables()
    words = ("erase", "1", "--store-url", url, "--yes", "--allow-unknown")
    told = run(*words).output
    assert "left in the database" not in told
    for place in ("before their field was marked personal", "stream names and message keys", "subject_streams"):
        assert place in " ".join(told.split())
    monkeypatch.setattr(Database, "scrub", lambda self, tables: ["a reader: erase again"])
    assert "left in the database, for you to remove:\n  - a reader: erase again\nout of reach" in run(*words).output
    assert json.loads(run(*words, "--json").output)["left"] == ["a reader: erase again"]


def test_keys_go_into_the_file_and_out_of_it_where_that_is_asked_for(url: str, tmp_path: Path) -> None:
    with SqlEventStore(url, keys=MASTER) as store:
        store.create_tables()
        store.append("guest-1", [Guest.Invited(name="Ada")], expected=ANY)
    file, target = str(tmp_path / "guests.jsonl"), f"sqlite:///{tmp_path / 'other.db'}"
    masters = {"FACTFOLD_MASTER_KEYS": f"one:{base64.b64encode(KEY).decode()}"}
    run("store", "export", file, "--store-url", url)
    for options in ([], ["--with-keys"]):
        assert isinstance(
            run("store", "import", file, "--store-url", target, *options, **masters).exception, KeysMissing
        )
    assert ", 1 keys" in run("store", "export", file, "--store-url", url, "--with-keys").output
    assert isinstance(run("store", "import", file, "--store-url", target, "--with-keys").exception, KeysMissing)
    done = run("store", "import", file, "--store-url", target, "--with-keys", **masters)
    assert (done.exit_code, done.output) == (0, "1 events imported, 0 were there, 1 keys taken over\n")
    with SqlEventStore(target, keys=MASTER) as other:
        assert names(other) == ["Ada"]


def test_an_import_asks_the_key_store_that_is_named(elsewhere: SqlEventStore, url: str, tmp_path: Path) -> None:
    file, target = str(tmp_path / "guests.jsonl"), f"sqlite:///{tmp_path / 'other.db'}"
    elsewhere.export_file(file)
    assert isinstance(run("store", "import", file, "--store-url", target).exception, KeysMissing)
    done = run("store", "import", file, "--store-url", target, "--key-store", named("vault"))
    assert (done.exit_code, done.output) == (0, "1 events imported, 0 were there\n")


# ---- programs that deliver events with personal fields take the keys of their environment


MASTER_KEY = f"a:{'A' * 43}="
SECONDS = 3


class Greeted(Aggregate, category="greeted_guest"):
    @event
    class Booked:
        name: Annotated[str, Personal(erased="(erased)")]

    @command
    def book(self, name: str) -> None:
        self.emit(self.Booked(name=name))


class Greeting(Process, sends=[Greeted]):
    @starts(Greeted.Booked)
    def booked(self, given: Greeted.Booked) -> None:
        if not self.id.endswith("-again"):
            self.send(f"{self.id}-again", Greeted.book, name="another")


GREETED: list[str] = []


@subscription(Greeted, group="greeting")
def greet(given: Greeted.Booked) -> None:
    GREETED.append(given.name)


@pytest.fixture
def store(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    for name, value in (("STORE_URL", url), ("MASTER_KEYS", MASTER_KEY)):
        monkeypatch.setenv(f"FACTFOLD_{name}", value)
    with SqlEventStore(url, keys=MasterKeys.parse(MASTER_KEY)) as opened:
        opened.create_tables()
        Dispatcher(opened).send("1", Greeted.book, name="Ann")
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
    from_store.run("tests.unit.test_erasure_command", f"{__name__}:greet", stop=soon())
    assert GREETED == ["Ann"]
