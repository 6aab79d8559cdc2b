"""`factfold events`, `factfold streams` and `factfold trace` on a file."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import Result

from eventstore import ANY, Dispatcher, MasterKeys, Metadata, NewEvent, Position, RecordedEvent, SqlEventStore
from eventstore.errors import DeclarationError, FactfoldError, InvalidIdentifier, KeysMissing
from eventstore.inspection.selection import Entry
from factfold.cli.events.entries import print_entries, print_entry
from factfold.cli.show import Out
from tests.commands import factfold
from tests.unit.guestbook import Customer, Order

GUESTBOOK = "tests.unit.guestbook"
SECRET = bytes(range(32))
KEYS = f"k:{base64.b64encode(SECRET).decode()}"
EVENT = "0198d0aa-0000-7000-8000-000000000001"


@pytest.fixture
def url(shop: Path, tmp_path: Path) -> str:
    """A copy of the store that a test may change."""
    shutil.copy(shop, tmp_path / "shop.db")
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a conversation of two commands, a customer, and an order of another one."""
    file = tmp_path_factory.mktemp("shop") / "shop.db"
    with SqlEventStore(f"sqlite:///{file}", keys=MasterKeys({"k": SECRET})) as store:
        store.create_tables()
        talk = Dispatcher(store).with_metadata(Metadata(correlation_id="talk"))
        placed = talk.send("o1", Order.place, Decimal("3.50"), "book")
        talk.with_metadata(placed.events[0].caused()).send("o1", Order.ship, "Post")  # type: ignore[union-attr]
        store.append("customer-c1", [Customer.Registered(name="Ann Smith", country="NL")], expected=ANY)
        later = NewEvent(Order.Placed(amount=Decimal(1), item="a\x1b[31m\u202eb"), id=UUID(EVENT))
        store.append("order-o2", [later], expected=ANY)
        store.engine.dispose()
    return file


def run(url: str, *words: str) -> Result:
    return factfold(*words, "--store-url", url)


def lines(url: str, *words: str) -> list[dict[str, Any]]:
    done = run(url, *words, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def refused(url: str, *words: str) -> FactfoldError:
    found = run(url, *words).exception
    assert isinstance(found, FactfoldError)
    return found


def places(url: str, *words: str) -> list[str]:
    return [line["place"] for line in lines(url, "events", "tail", *words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["order-o1@0", "order-o1@1", "customer-c1@0", "order-o2@0"]),
        (["-n", "2"], ["customer-c1@0", "order-o2@0"]),
        (["-n", "0"], []),
        (["--stream", "order-o1", "-n", "1"], ["order-o1@1"]),
        (["--stream", "order-o1", "--stream", "order-o2"], ["order-o1@0", "order-o1@1", "order-o2@0"]),
        (["--category", "order"], ["order-o1@0", "order-o1@1", "order-o2@0"]),
        (["--type", "order.placed"], ["order-o1@0", "order-o2@0"]),
        (["--type", "order.placed", "--stream", "order-o2"], ["order-o2@0"]),
        (["--correlation", "talk"], ["order-o1@0", "order-o1@1"]),
        (["--correlation", "nothing"], []),
        (["--since", "1h", "-n", "1"], ["order-o2@0"]),
        (["--until", "1h"], []),
        (["--until", "2000-01-01T00:00:00+02:00"], []),
    ],
)
def test_the_last_events_of_a_selection_are_shown_the_oldest_first(
    url: str, words: list[str], expected: list[str]
) -> None:
    assert places(url, *words) == expected


def test_a_line_is_short_in_utc_and_steers_no_terminal(url: str) -> None:
    first, *_, last = run(url, "events", "tail").output.splitlines()
    assert first[24:] == '  order-o1@0  order.placed  amount="3.50" item="book"'
    assert first[23] == "Z"
    assert last.endswith('item="a\\u001b[31m\\u202eb"')


@pytest.mark.parametrize(
    ("words", "kind", "cause"),
    [
        (["--since", "yesterday"], DeclarationError, "'yesterday' is no time"),
        (["--since", "2026-01-01T00:00:00"], DeclarationError, "has no time zone"),
        (["--until", "2026-01-01"], DeclarationError, "has no time zone"),
        (["--stream", "order"], InvalidIdentifier, "'order' has no dash"),
        (["--type", "Placed"], InvalidIdentifier, "event type name 'Placed'"),
        (["--category", "Order"], InvalidIdentifier, "category 'Order'"),
        (["--correlation", "a\nb"], InvalidIdentifier, "metadata value"),
        (["--show-personal"], KeysMissing, "--show-personal needs keys"),
    ],
)
def test_a_selection_that_cannot_be_is_refused(
    url: str, words: list[str], kind: type[FactfoldError], cause: str
) -> None:
    found = refused(url, "events", "tail", *words)
    assert isinstance(found, kind)
    assert cause in found.message


def test_a_command_without_store_and_topic_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FACTFOLD_STORE_URL", raising=False)
    for words in (["events", "tail"], ["events", "show", EVENT], ["trace", "talk"]):
        found = factfold(*words).exception
        assert isinstance(found, DeclarationError)
        assert "--store-url" in found.remedy


@pytest.mark.parametrize("keys", [[], ["--master-keys", KEYS]])
def test_personal_values_are_masked_even_where_keys_are_at_hand(url: str, keys: list[str]) -> None:
    words = ["events", "tail", "--category", "customer", *keys]
    assert lines(url, *words)[0]["data"] == {"name": "***", "country": "NL"}
    assert "Ann" not in run(url, *words).output


def test_personal_values_are_shown_where_that_is_asked_for_with_the_keys(url: str) -> None:
    words = ["events", "show", "customer-c1@0", "--show-personal", "--master-keys", KEYS]
    assert lines(url, *words)[0]["data"]["name"] == "Ann Smith"


@pytest.mark.parametrize("event", [EVENT, "order-o2@0"])
def test_an_event_is_shown_by_its_id_and_by_its_place(url: str, event: str) -> None:
    (found,) = lines(url, "events", "show", event)
    assert (found["place"], found["id"], found["type"]) == ("order-o2@0", EVENT, "order.placed")
    assert "order-o2@0" in run(url, "events", "show", event).output


@pytest.mark.parametrize(
    ("event", "code", "cause"),
    [
        ("0198d0aa-0000-7000-8000-000000000009", "events-not-found", "no event has the id"),
        ("order-o1@2", "events-not-found", "has versions 0 to 1, and no version 2"),
        ("order-o9@0", "events-not-found", "'order-o9' has no events here"),
        ("order-o1", "declaration-error", "neither the id of an event nor a place"),
    ],
)
def test_an_event_that_is_not_there_is_refused(url: str, event: str, code: str, cause: str) -> None:
    found = refused(url, "events", "show", event)
    assert found.code == code
    assert cause in found.message


def test_a_stream_shows_its_state_and_what_the_event_changed(url: str) -> None:
    (found,) = lines(url, "streams", "show", "order-o1", f"{GUESTBOOK}:Order")
    assert found["state"] == {"status": "shipped", "total": "3.50", "items": ["book"]}
    assert found["changes"] == {"status": {"before": "placed", "after": "shipped"}}
    assert (found["version"], found["head"], found["archived"]) == (1, 1, False)
    (earlier,) = lines(url, "streams", "show", "order-o1", f"{GUESTBOOK}:Order", "--at", "0")
    assert earlier["changes"]["items"] == {"before": [], "after": ["book"]}
    assert [one["place"] for one in earlier["events"]] == ["order-o1@0"]
    told = run(url, "streams", "show", "order-o1", f"{GUESTBOOK}:Order").output
    assert 'status = "shipped"   (was "placed")' in told


def test_a_stream_without_its_aggregate_shows_its_events(url: str) -> None:
    (found,) = lines(url, "streams", "show", "customer-c1")
    assert (found["state"], found["changes"]) == (None, None)
    assert found["events"][0]["data"]["name"] == "***"


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        (["order-o1", f"{GUESTBOOK}:Order", "--at", "9"], "events-not-found", "no version 9"),
        (["order-o9"], "events-not-found", "has no events here, or was deleted"),
        (["order-o1", f"{GUESTBOOK}:Customer"], "declaration-error", "'customer', and order-o1 is not of it"),
        (["order-o1", f"{GUESTBOOK}:ship"], "declaration-error", "is no aggregate: it has Customer, Order"),
        (["customer-c1", f"{GUESTBOOK}:Customer"], "keys-missing", "depends on personal values"),
    ],
)
def test_a_state_that_cannot_be_told_is_refused(url: str, words: list[str], code: str, cause: str) -> None:
    found = refused(url, "streams", "show", *words)
    assert found.code == code
    assert cause in found.message


def test_a_personal_state_is_shown_with_the_keys(url: str) -> None:
    words = ["streams", "show", "customer-c1", f"{GUESTBOOK}:Customer", "--show-personal", "--master-keys", KEYS]
    assert lines(url, *words)[0]["state"] == {"name": "Ann Smith"}


def test_a_trace_shows_each_step_below_its_cause(url: str) -> None:
    (found,) = lines(url, "trace", "talk")
    assert [(step["kind"], step["name"], step["depth"]) for step in found["steps"]] == [
        ("command", None, 0),
        ("event", "order.placed", 1),
        ("command", "order.ship", 2),
        ("event", "order.shipped", 3),
    ]
    told = run(url, "trace", "talk").output.splitlines()
    assert told[0].startswith("talk: 2 events, ")
    assert told[3].lstrip().startswith("└── command order.ship")


def test_an_unknown_correlation_id_ends_with_cause_and_remedy(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from factfold.cli.entry import main

    monkeypatch.setattr("sys.argv", ["factfold", "trace", "nothing", "--store-url", url])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    shown = capsys.readouterr().err
    assert "no event has the correlation id 'nothing'" in shown
    assert "remedy: check the id" in shown


def test_a_date_without_time_and_zone_is_told_how_to_write_it(url: str) -> None:
    assert "write it as 2026-01-01T00:00:00Z" in refused(url, "events", "tail", "--since", "2026-01-01").remedy


def test_names_in_headers_of_other_systems_steer_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = RecordedEvent(
        id=UUID(EVENT), stream="order-\x1b[2J", version=0, type="a\x1b[31m", schema_id=1, data={}, metadata=Metadata(),
        time=datetime(2026, 11, 26, tzinfo=UTC), position=Position(0, 1),
    )  # fmt: skip
    entry = replace(Entry.of_event(recorded, log="order"), place="order[0]@1", headers={"h": "\x1b[0m"})
    print_entries([entry], Out())
    print_entry(entry)
    assert "\x1b" not in capsys.readouterr().out


def parcels(url: str) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return list(connection.execute("select * from parcels"))


def test_a_replay_says_what_it_would_deliver_and_delivers_with_yes_alone(url: str) -> None:
    words = ["events", "replay", f"{GUESTBOOK}:ship", "--stream", "order-o1"]
    told = run(url, *words)
    assert told.exit_code == 0
    assert "1 events for tests.unit.guestbook.ship, group shipping. Its inbox knows 0" in told.output
    assert "nothing was delivered" in told.output
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        parcels(url)
    for _ in range(2):
        assert lines(url, *words, "--yes")[0] | {"reached": None} == {
            "delivered": True, "handled": 1, "overtaken": 0, "reached": None,
        }  # fmt: skip
    assert parcels(url) == [("order-o1", "book")] * 2
    (plan,) = lines(url, *words)
    assert (plan["delivered"], plan["events"], plan["known"], plan["types"]) == (False, 1, 1, {"order.placed": 1})


def test_a_replay_of_nothing_in_particular_is_refused(url: str) -> None:
    assert "no events are chosen" in refused(url, "events", "replay", f"{GUESTBOOK}:ship").message
    (plan,) = lines(url, "events", "replay", f"{GUESTBOOK}:ship", "--all")
    assert plan["events"] == 2


def test_a_replay_is_bounded_by_versions(url: str) -> None:
    words = ["events", "replay", f"{GUESTBOOK}:ship", "--stream", "order-o1", "--from", "1"]
    assert lines(url, *words)[0]["events"] == 0


PAGE = Path(__file__).parents[2] / "docs/reference/json-output.md"


def documented(command: str) -> set[str]:
    """The code in a command's line of the table, but for values and for names of other commands."""
    (line,) = [found for found in PAGE.read_text().splitlines() if found.startswith(f"| `{command}`")]
    return set(re.findall(r"`(\w+)`", line.partition("|")[2].partition("|")[2])) - FORMS


FORMS = {"event", "avro", "json", "text", "bytes", "deleted", "command"}


def test_the_keys_of_the_page_are_those_that_are_printed(url: str) -> None:
    (shown,), (stream,) = lines(url, "events", "show", "order-o1@0"), lines(url, "streams", "show", "order-o1")
    (traced,) = lines(url, "trace", "talk")
    replayed = [*_replayed(url), *_replayed(url, "--yes")]
    assert documented("events tail") == set(shown) - FORMS
    assert documented("streams show") == {*stream, "before", "after"}
    assert documented("trace") == {*traced, *traced["steps"][0], "group", "topic", "outcome", "time"} - FORMS
    assert documented("events replay") == set(replayed)


def _replayed(url: str, *words: str) -> dict[str, Any]:
    return lines(url, "events", "replay", f"{GUESTBOOK}:ship", "--all", *words)[0]
