"""Dead letters, stuck processes and scheduled commands by the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from eventstore import SqlEventStore, subscription
from eventstore.backends.sql.process_rows import Scheduled
from eventstore.deadletters.letters import Action, Cause, Contents, Letter, Settled
from eventstore.errors import InvalidEventData
from eventstore.processes.administration import InstanceStatus, ProcessCount
from eventstore.processes.worker import ProcessWorker, WorkReport
from eventstore.scheduling import Schedule
from factfold.cli import letters, show
from tests.commands import factfold
from tests.conformance.process_shop import Exploding, explode
from tests.ledger import Payment
from tests.unit.eventstore.fulfilled import fill_with_orders
from tests.unit.eventstore.fulfilment import Order
from tests.unit.eventstore.handlers import store_of_letters
from tests.unit.test_quick_commands import documented, fields


@subscription("payment", group="books", attempts=1)
def book(event: Payment.Received, tx: sa.Connection) -> None:
    raise ValueError(f"no room for {event.amount}")


@pytest.fixture
def run(tmp_path):
    """Run a command over the letters of a store with two of them."""
    url = f"sqlite:///{tmp_path}/shop.db"
    store_of_letters(url, book, *(Payment.Received(amount=amount) for amount in (1, 2)), stream="payment-1")

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


# ---- `factfold schedule`


@pytest.fixture
def run_schedule(tmp_path):
    """Run a command over a store in which a command failed once, and another one waits."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with SqlEventStore(url) as store:
        store.create_tables()
        schedule = Schedule(store)
        schedule.at(datetime(2026, 1, 1, tzinfo=UTC)).send("o1", explode)
        schedule.after(timedelta(days=1)).send("o2", Order.cancel, reason="late")
        ProcessWorker(store, commands=[Exploding]).run_once()

    def invoke(*arguments):
        return factfold("schedule", *arguments, "--store-url", url)

    return invoke


def test_scheduled_commands_are_listed_with_the_keys_of_the_page(run_schedule):
    done = run_schedule("list", "--json")
    assert done.exit_code == 0
    failed, waiting = json.loads(done.stdout)
    assert list(failed) == documented("schedule list")[: len(fields(Scheduled))] == fields(Scheduled)
    assert (failed["name"], failed["error"], failed["attempts"]) == ("exploding.explode", "ZeroDivisionError", 1)
    assert (waiting["target"], waiting["arguments"]) == ("o2", '{"reason": "late"}')


def test_a_failed_command_is_named_with_exit_code_3(run_schedule):
    done = run_schedule("list", "--failed")
    assert done.exit_code == 3
    assert "exploding.explode for exploding-o1 {}\n  failed, attempts: 1: ZeroDivisionError\n1 command\n" in done.stdout


def test_a_failed_command_is_retried_and_cancelled_by_its_id(run_schedule):
    (failed,) = json.loads(run_schedule("list", "--failed", "--json").stdout)
    assert run_schedule("retry", failed["id"]).stdout == f"{failed['id']} is due now\n"
    again = run_schedule("retry", failed["id"])
    assert (again.exit_code, "there is no such command" in again.stderr) == (1, True)
    assert json.loads(run_schedule("cancel", failed["id"], "--json").stdout) == {"done": True}
    assert json.loads(run_schedule("cancel", failed["id"], "--json").stdout) == {"done": False}
    assert run_schedule("cancel", "no-id").exit_code == 2


# ---- `factfold processes`


TARGET = "tests.unit.eventstore.fulfilment:Fulfilment"


@pytest.fixture
def run_processes(tmp_path):
    """Run a command over a store in which o1 waits for its payment, and the compensation of o2 was refused."""
    url = f"sqlite:///{tmp_path}/shop.db"
    fill_with_orders(url)

    def invoke(*arguments, json_=True):
        options = ["--json"] if json_ else []
        return factfold("processes", *arguments, "--store-url", url, *options)

    return invoke


def told_of_processes(done, code=0):
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_the_keys_are_those_of_the_page(run_processes):
    (first, _) = told_of_processes(run_processes("list"))
    assert list(first) == documented("processes list")[: len(fields(InstanceStatus))] == fields(InstanceStatus)
    assert list(told_of_processes(run_processes("stats"))[0]) == documented("processes stats") == fields(ProcessCount)
    assert documented("processes run") == fields(WorkReport)


def test_what_is_stuck_is_listed_with_its_reason_and_exit_code_3(run_processes):
    (stuck,) = told_of_processes(run_processes("list", "--stuck", "1h"), code=3)
    assert (stuck["instance"], stuck["status"]) == ("o2", "compensation_failed")
    assert "the shelf is closed" in stuck["problem"]
    shown = run_processes("list", "--stuck", "1h", json_=False).stdout
    assert "waits for a retry of its compensation\n  problem: item.release" in shown


def test_what_waits_says_for_what(run_processes):
    waiting = told_of_processes(run_processes("show", "fulfilment-o1"))
    assert waiting["waits_for"].startswith("timer payment, due 2")
    assert [step["cause"]["name"] for step in waiting["steps"]] == ["order.placed", "item.reserve"]
    assert waiting["steps"][-1]["state"]["reserved"] is True
    assert "sends item.reserve to tea" in run_processes("show", "fulfilment-o1", json_=False).stdout


def test_an_instance_is_cancelled_and_another_retried(run_processes):
    assert told_of_processes(run_processes("cancel", TARGET, "o1"))["status"] == "compensating"
    assert told_of_processes(run_processes("retry", TARGET, "o2"))["status"] == "compensating"
    assert told_of_processes(run_processes("list", "--stuck", "1h")) == []


def test_all_with_a_problem_or_of_one_cause_are_retried_or_cancelled(run_processes):
    assert run_processes("retry", TARGET, "--cause", "another", json_=False).stdout == "0 of 0 instances\n"
    assert (
        told_of_processes(run_processes("cancel", TARGET, "--cause", "the shelf is closed", "--no-compensate"))[
            "status"
        ]
        == "cancelled"
    )
    assert "is empty" in str(run_processes("cancel", TARGET, "").exception)  # an empty id means no others
    for words in ((), ("o1", "--all")):
        assert run_processes("retry", TARGET, *words).exit_code == 2


def test_retry_all_repeats_what_has_a_problem(run_processes):
    assert run_processes("retry", TARGET, "--all", json_=False).stdout.endswith("1 of 1 instances\n")
    assert told_of_processes(run_processes("list", "--stuck", "1h")) == []


def test_an_instance_that_is_not_there_is_an_error_with_exit_code_1(run_processes):
    done = run_processes("show", "fulfilment-o9")
    assert done.exit_code == 1
    assert "there is no fulfilment 'o9'" in str(done.exception)


def test_a_class_that_is_no_process_is_an_error(run_processes):
    done = run_processes("retry", "tests.unit.eventstore.fulfilment:Order", "o1")
    assert "is no process" in str(done.exception)
