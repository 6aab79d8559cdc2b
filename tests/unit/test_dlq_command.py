"""`factfold dlq`: what it prints and takes, and what it refuses before it asks anybody."""

from __future__ import annotations

import dataclasses
import json

import pytest
import sqlalchemy as sa

from eventstore import ANY, SqlEventStore, Subscriber, subscription
from eventstore.backends.sql.source import StoreSource
from eventstore.deadletters.letters import Action, Cause, Contents, Letter, Settled
from eventstore.errors import InvalidEventData
from factfold.cli import letters, show
from tests.commands import factfold
from tests.ledger import Payment
from tests.unit.test_documented_json import documented, fields


@subscription("payment", group="books", attempts=1)
def book(event: Payment.Received, tx: sa.Connection) -> None:
    raise ValueError(f"no room for {event.amount}")


@pytest.fixture
def run(tmp_path):
    """Run a command over the letters of a store with two of them."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with SqlEventStore(url) as store:
        store.create_tables()
        for amount in (1, 2):
            store.append("payment-1", [Payment.Received(amount=amount)], expected=ANY)
        source = StoreSource(store, book, category="payment")
        with Subscriber(book, source, engine=store.engine) as subscriber:
            subscriber.run_once(timeout=0)

    def invoke(command, *options, json_=True, **more):
        arguments = ["dlq", command, "payment", "books", "--inbox-url", url, *options]
        return factfold(*([*arguments, "--json"] if json_ else arguments), **more)

    return invoke


def told(done):
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_causes_letters_and_a_letter_have_the_keys_of_the_page(run):
    (cause,) = told(run("list"))
    first, _ = told(run("list", "--letters"))
    shown = told(run("show", "--id", first["id"]))
    assert list(cause) == documented("dlq list") == fields(Cause)
    assert list(first) == fields(Letter)
    assert list(shown) == [*fields(Letter), *documented("dlq show")]
    assert documented("dlq show") == [name for name in fields(Contents) if name != "letter"]
    assert (cause["count"], cause["pattern"], shown["payload"]) == (2, "no room for …", {"amount": 1})


def test_what_was_done_has_the_keys_of_the_page(run):
    first, second = told(run("list"))[0]["letters"]
    done = told(run("discard", "--id", first, "--yes", "--why", "a test"))
    assert list(done) == documented("dlq replay")
    assert told(run("replay", "--all", "--by", "ann"))["settled"] == 1
    actions = told(run("actions"))
    assert list(actions[0]) == documented("dlq actions") == fields(Action)
    assert [(one["letter"], one["action"], one["result"]) for one in actions] == [
        (first, "discard", "discarded"), (second, "replay", "waiting"),
    ]  # fmt: skip
    assert told(run("list")) == []


def test_people_read_causes_letters_and_actions_as_lines(run):
    listed = run("list", json_=False).output
    assert "2 open, causes: 1" in listed
    assert "2 × ValueError: no room for …" in listed
    assert "payment-1@1: ValueError: no room for 2, attempts: 1" in run("list", "--letters", json_=False).output
    letter = told(run("list"))[0]["letters"][0]
    shown = run("show", "--id", letter, json_=False).output
    assert "error: ValueError" in shown
    assert '"amount": 1' in shown
    assert "1 replayed, 0 of the chosen letters stay open" in run("replay", "--id", letter, json_=False).output
    assert f"replay {letter} to the group, waiting" in run("actions", json_=False).output


def test_a_discard_asks_first_and_no_is_no(run):
    refused = run("discard", "--all", input="n\n")
    assert refused.exit_code == 1
    assert "Discard 2 letters of payment books" in refused.output
    assert told(run("list"))[0]["count"] == 2


def test_no_open_letter_leads_to_the_actions_and_to_the_names(run):
    run("discard", "--all", "--yes")
    said = run("list", json_=False).output
    assert "0 open" in said
    assert "factfold dlq actions" in said
    assert "check the names" in said


def test_an_edit_is_a_file_with_another_payload(run, tmp_path):
    letter = told(run("list"))[0]["letters"][0]
    file = tmp_path / "edit.json"
    file.write_text('{"amount": 7}', encoding="utf-8")
    assert told(run("replay", "--id", letter, "--edit", str(file)))["settled"] == 1
    assert [action["edited"] for action in told(run("actions"))] == [True]


@pytest.mark.parametrize("text", ["no JSON", "[1]", '{"amount": {"$decimal": "x"}}', "\ud800"])
def test_a_file_that_holds_no_payload_is_refused(run, tmp_path, text):
    letter = told(run("list"))[0]["letters"][0]
    file = tmp_path / "edit.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    done = run("replay", "--id", letter, "--edit", str(file))
    assert isinstance(done.exception, InvalidEventData)
    assert "holds no payload in JSON" in done.exception.message


PLACES = {"FACTFOLD_INBOX_URL": "sqlite:///inbox.db", "FACTFOLD_VIEWS_URL": "sqlite:///views.db"}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ([], "topic"),
        (["--home", "inbox"], "inbox"),
        (["--home", "views"], "views"),
        (["--inbox-url", "sqlite:///other.db"], "inbox"),
        (["--views-url", "sqlite:///other.db"], "views"),
    ],
)
def test_a_variable_gives_the_address_of_a_home_and_chooses_none(monkeypatch, options, kind):
    asked = []
    monkeypatch.setattr("factfold.cli.letters.opened_letters", lambda home: asked.append(home))
    factfold("dlq", "list", "payment", "books", *options, env=PLACES)
    assert asked[0].home == kind
    assert {asked[0].database, asked[0].views_url} >= set(options[1:]) & {"sqlite:///other.db"}


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["replay", "payment", "books"], "--all"),
        (["replay", "payment", "books", "--all", "--id", "0@1"], "--all"),
        (["list", "payment", "--inbox-url", "sqlite:///x.db"], "group"),
        (["list", "payment", "books", "--inbox-url", "sqlite:///x.db", "--views-url", "sqlite:///x.db"], "two places"),
    ],
)
def test_a_command_without_one_home_or_one_choice_is_written_wrongly(arguments, cause):
    done = factfold("dlq", *arguments)
    assert done.exit_code == 2
    assert cause in done.output


class LeftOpen:
    place = "payment.books.dead-letter"

    def replay(self, ids, **options):
        options["on_progress"](1, 2)
        return Settled(1, {"0@1": "the letter does not hold the record"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_letters_that_stay_open_are_told_by_the_exit_code_and_their_reasons(monkeypatch):
    monkeypatch.setattr(letters, "opened_letters", lambda *home: LeftOpen())
    arguments = ["dlq", "replay", "payment", "books", "--all"]
    as_text = factfold(*arguments)
    as_json = factfold(*arguments, "--json")
    assert (as_text.exit_code, as_json.exit_code) == (3, 3)
    assert "1 replayed, 1 of the chosen letters stay open\n  0@1: the letter does not hold the record" in as_text.output
    assert json.loads(as_json.stdout)["left"] == {"0@1": "the letter does not hold the record"}


def test_progress_is_told_once_work_takes_long(monkeypatch, capsys):
    now = iter([0.0, 1.0, 11.0, 12.0, 30.0])
    monkeypatch.setattr(show.clock, "monotonic", lambda: next(now))
    with show.progress("replaying") as tell:
        for done in (1, 2, 3, 4):
            tell(done, 4)
    assert capsys.readouterr().err == "replaying: 2 of 4\nreplaying: 4 of 4\n"


def test_a_letter_and_its_contents_are_plain_values():
    assert all(dataclasses.is_dataclass(kind) for kind in (Letter, Contents, Cause, Action))
