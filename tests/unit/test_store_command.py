"""`factfold store` on a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from eventstore import ANY, SqlEventStore
from eventstore.backends.sql.models import NEWEST
from eventstore.errors import (
    ImportConflict,
    InvalidIdentifier,
    StoreNotPrepared,
    StreamDeleted,
    UnsupportedBackend,
    WrongExpectedVersion,
)
from eventstore.store import FenceStatus
from factfold.cli import show
from tests.commands import factfold
from tests.notes import Note


def run(*words: str) -> Result:
    return factfold("store", *words)


def test_a_store_is_made_and_told_of(url: str) -> None:
    assert isinstance(run("status", "--store-url", url).exception, StoreNotPrepared)
    Path(url.removeprefix("sqlite:///")).touch()
    missing = run("status", "--store-url", url)
    assert (missing.exit_code, missing.output) == (3, f"version none, this release needs {NEWEST}\n")
    assert run("migrate", "--store-url", url).output == f"version {NEWEST}, was none\n"
    assert run("migrate", "--store-url", url).output == f"version {NEWEST}\n"
    with SqlEventStore(url) as store:
        store.declare_category("order", partitions=3)
    made = run("status", "--store-url", url)
    assert made.exit_code == 0
    assert "category order: topic order, 3 partitions" in made.output


def test_the_status_is_json_where_it_is_asked_for(url: str) -> None:
    run("migrate", "--store-url", url)
    told = json.loads(run("status", "--store-url", url, "--json").output)
    assert told["installed"] == told["newest"] == NEWEST
    assert told["fence"] == {"waiting": 0, "age": 0.0, "holder": None}


def test_a_dry_run_prints_sql_and_executes_none(url: str) -> None:
    shown = run("migrate", "--store-url", url, "--dry-run")
    assert "CREATE TABLE events" in shown.output
    assert run("status", "--store-url", url).exit_code == 3


def test_a_look_at_a_mistyped_file_makes_none(tmp_path: Path) -> None:
    mistyped = tmp_path / "evnets.db"
    refused = run("status", "--store-url", f"sqlite:///{mistyped}").exception
    assert isinstance(refused, StoreNotPrepared)
    assert refused.message == "there is no such file"
    assert not mistyped.exists()


def test_a_file_without_tables_names_the_command_that_makes_them(url: str, tmp_path: Path) -> None:
    Path(url.removeprefix("sqlite:///")).touch()
    refused = run("export", str(tmp_path / "events.jsonl"), "--store-url", url).exception
    assert isinstance(refused, StoreNotPrepared)
    assert "factfold store migrate" in refused.remedy


@pytest.mark.parametrize("text", ["nonsense", "mysql://u:sentinel@h/d", "nosuch://u:sentinel@h/d"])
def test_a_url_that_is_none_is_refused_and_not_shown(text: str) -> None:
    refused = run("status", "--store-url", text).exception
    assert isinstance(refused, UnsupportedBackend)
    assert "sentinel" not in str(refused)


@pytest.mark.parametrize(
    ("opened", "words", "topic"),
    [
        ({"source": "/shop"}, ["--store-source", "/shop"], "shop.note"),
        (
            {"topic_prefix": "acme-", "source": "/acme"},
            ["--store-topic-prefix", "acme-", "--store-source", "/acme"],
            "acme-note",
        ),
        ({"topic_prefix": "acme-"}, ["--store-topic-prefix", "acme-"], "acme-note"),
    ],
)
def test_a_file_of_a_service_is_imported_under_its_topics_by_the_names_that_it_has(
    url: str, tmp_path: Path, opened: dict[str, str], words: list[str], topic: str
) -> None:
    file = tmp_path / "notes.jsonl"
    with SqlEventStore(f"sqlite:///{tmp_path / 'from.db'}", **opened) as store:  # type: ignore[arg-type]
        store.create_tables()
        store.append("note-1", [Note.Written(text="x")], expected=ANY)
        store.export_file(file)

    refused = run("import", str(file), "--store-url", url).exception
    assert isinstance(refused, ImportConflict)
    assert all(option in refused.remedy for option in ("--store-source", "--store-topic-prefix", "--with-topics"))

    assert run("import", str(file), "--store-url", url, *words).exit_code == 0
    assert f"category note: topic {topic}, " in run("status", "--store-url", url).output


def test_a_source_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    file = str(tmp_path / "notes.jsonl")
    assert isinstance(run("import", file, "--store-url", url, "--store-source", "shop\n").exception, InvalidIdentifier)


@pytest.mark.parametrize("name", ["notes.jsonl", "notes.parquet"])
def test_events_go_from_one_store_to_another_with_the_marks_of_archived_streams(
    noted: str, url: str, tmp_path: Path, name: str
) -> None:
    file, other = str(tmp_path / name), f"sqlite:///{tmp_path / 'other.db'}"
    assert run("export", file, "--store-url", url).stdout == "2 events of 1 categories, 1 schemas\n"
    assert run("import", file, "--store-url", other).stdout == "2 events imported, 0 were there\n"
    run("archive", "note-1", "--store-url", url, "--yes")
    run("export", file, "--store-url", url)
    assert run("import", file, "--store-url", other).stdout == "0 events imported, 2 were there, 1 streams archived\n"


@pytest.fixture
def noted(url: str) -> str:
    """A store with one stream of two events."""
    with SqlEventStore(url) as store:
        store.create_tables()
        store.append("note-1", [Note.Written(text="a"), Note.Written(text="b")], expected=ANY)
    return url


def answered(answer: str, *words: str) -> Result:
    """What a command does after an answer, which the runner repeats in front of what the command says."""
    return factfold("store", *words, input=answer)


def test_a_stream_is_archived_and_taken_out_again(noted: str) -> None:
    archived = answered("y\n", "archive", "note-1", "--store-url", noted)
    assert "Archive 'note-1' at version 1 [y/N]" in archived.stderr
    assert archived.stdout.splitlines()[1:] == ["note-1: archived at version 1"]
    again = run("archive", "note-1", "--store-url", noted, "--yes", "--json")
    assert json.loads(again.stdout) == {"stream": "note-1", "archived": True, "version": 1}
    assert answered("n\n", "unarchive", "note-1", "--store-url", noted).exit_code == 1
    assert "note-1: takes events again" in answered("y\n", "unarchive", "note-1", "--store-url", noted).stdout
    again = run("unarchive", "note-1", "--store-url", noted, "--json")
    assert json.loads(again.stdout) == {"stream": "note-1", "archived": False, "changed": False}


def test_a_stream_is_deleted_when_somebody_says_yes(noted: str) -> None:
    kept = answered("n\n", "delete", "note-1", "--store-url", noted)
    assert (kept.exit_code, kept.stdout.split()) == (1, ["n"])
    assert "Delete 'note-1' and its 2 events? It cannot be undone [y/N]" in kept.stderr
    assert "note-1: 2 events deleted" in answered("y\n", "delete", "note-1", "--store-url", noted).stdout
    assert run("delete", "note-1", "--store-url", noted).stdout == "note-1: was deleted before\n"
    assert json.loads(run("delete", "note-1", "--store-url", noted, "--json").stdout) == {
        "stream": "note-1",
        "deleted": 0,
    }
    assert isinstance(run("archive", "note-1", "--store-url", noted, "--yes").exception, StreamDeleted)


@pytest.mark.parametrize("command", ["archive", "delete"])
def test_a_stream_that_is_not_what_was_expected_stays_as_it_is(noted: str, command: str) -> None:
    refused = run(command, "note-1", "--store-url", noted, "--expected", "0", "--yes").exception
    assert isinstance(refused, WrongExpectedVersion)
    assert refused.actual == 1
    assert isinstance(run(command, "note-2", "--store-url", noted).exception, WrongExpectedVersion)
    assert run(command, "note-1", "--store-url", noted, "--expected", "1", "--yes").exit_code == 0


@pytest.mark.parametrize(
    ("fence", "told"),
    [
        (FenceStatus(0, 0.0, None), "fence: 0 events wait, 0.0 s\n"),
        (FenceStatus(1200, 61.25, "nightly"), "fence: 1,200 events wait, 61.2 s, for nightly\n"),
        (FenceStatus(1, None, "somebody"), "fence: 1 events wait, how long this user may not see, for somebody\n"),
    ],
)
def test_the_status_tells_how_old_the_fence_is(
    noted: str, monkeypatch: pytest.MonkeyPatch, fence: FenceStatus, told: str
) -> None:
    monkeypatch.setattr(SqlEventStore, "fence", lambda self: fence)
    assert run("status", "--store-url", noted).stdout.endswith(told)


def test_a_bar_is_shown_once_it_takes_longer_than_two_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 1.9, 2.1])
    with monkeypatch.context() as patched:
        patched.setenv("FORCE_COLOR", "1")  # a bar moves in a terminal only
        patched.setattr(show, "_now", lambda: next(now))
        with show.late_bar("exporting") as tell:
            tell(10, 100)
            assert "exporting" not in capsys.readouterr().err
            tell(20, 100)
            assert "exporting" in capsys.readouterr().err


def test_doctor_looks_at_a_store_where_it_is_told_of_one(url: str) -> None:
    doctor = ["doctor", "--json", "--store-url", url]
    file = Path(url.removeprefix("sqlite:///"))
    found = json.loads(factfold(*doctor).output)[-1]
    assert (found["check"], found["severity"], found["result"]) == ("store", "error", "there is no such file")
    assert not file.exists()
    file.touch()
    found = json.loads(factfold(*doctor).output)[-1]
    assert (found["check"], found["severity"]) == ("store", "error")
    assert "factfold store migrate" in found["remedy"]
    run("migrate", "--store-url", url)
    assert json.loads(factfold(*doctor).output)[-1]["severity"] == "ok"
