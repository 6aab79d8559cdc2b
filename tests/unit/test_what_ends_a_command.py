"""Whatever ends a command is an error with a cause and a remedy: bad addresses, paths, rights, files and modules."""

from __future__ import annotations

import os
import sys

import pytest

from eventstore import SqlEventStore
from eventstore.errors import FactfoldError
from factfold.cli import entry
from factfold.cli.show import typed_failures
from factfold.settings_file import use_settings_file
from tests.commands import factfold
from tests.rows import each_row

NO_UTF8 = os.fsdecode(b"no\xff\xfeutf8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    with SqlEventStore(f"sqlite:///{tmp_path}/good.db") as store:
        store.create_tables()
    (tmp_path / "text.db").write_text("no database " * 400)
    (tmp_path / "text.txt").write_text("a file, and no folder")
    (tmp_path / "ending.py").write_text("raise SystemExit(5)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


STORE = {
    "status": ["store", "status"],
    "export": ["store", "export", "x.jsonl"],
    "import": ["store", "import", "x.jsonl"],
    "delete": ["store", "delete", "order-1", "--yes"],
    "renumber": ["store", "renumber"],
    "erase": ["erase", "7", "--yes"],
    "processes": ["processes", "list"],
    "events": ["events", "tail"],
    "streams": ["streams", "show", "order-1"],
}
URLS = {
    "sqlite:///text.db": "no SQLite database",
    "sqlite:///missing/x.db": "",
    "sqlite:////proc/nothing/x.db": "",
    "sqlite:///good.db?timeout=soon": "cannot be read",
    "postgresql://u@[::1": "cannot be read",
    "postgresql://u@h:port/x": "cannot be read",
    "postgresql://u:secret@127.0.0.1:1/x": "does not answer",
    "postgresql://u@127.0.0.1:1/x?connect_timeout=soon": "bad value for connect_timeout",
    "nonsense": "cannot be read",
}


@each_row("command", STORE)
@each_row("url", URLS)
def test_a_bad_address_is_an_error_with_a_remedy(folder, command, url):
    done = factfold(*STORE[command], "--store-url", url)
    assert is_typed(done), done
    assert URLS[url] in done.exception.message
    assert "secret" not in str(done.exception)


OTHERS = [
    ["store", "status", "--store-url", f"sqlite:///{NO_UTF8}"],
    ["store", "tenants", "--store-url", "postgresql://u@127.0.0.1:1/x"],
    ["store", "export", "text.txt/x", "--store-url", "sqlite:///good.db"],
    ["store", "export", "x" * 300, "--store-url", "sqlite:///good.db"],
    ["store", "import", "x" * 300, "--store-url", "sqlite:///good.db"],
    ["watch", "export", "text.txt"],
    ["watch", "export", "text.txt/inside"],
    ["cdc", "plan", "x" * 300],
    ["cdc", "plan", "ending:connectors"],
    ["cdc", "plan", f"{NO_UTF8}.toml"],
    ["schema", "check", "ending:Order", "--store-url", "sqlite:///good.db"],
    ["schema", "check", f"{NO_UTF8}:Order", "--store-url", "sqlite:///good.db"],
    ["processes", "run", "ending:Process", "--store-url", "sqlite:///good.db"],
]


@each_row("arguments", OTHERS)
def test_a_bad_path_or_module_is_an_error_with_a_remedy(folder, arguments):
    assert is_typed(done := factfold(*arguments)), done


def is_typed(done):
    """Whether an error with a cause and a remedy ended a command, and not the one of what nobody thought of."""
    error = done.exception
    return isinstance(error, FactfoldError) and bool(error.remedy) and "has no error for" not in error.message


RAISES = {
    "the operating system": (PermissionError(13, "Permission denied", "/x"), "refuses: '/x': Permission denied"),
    "a port": (OSError(98, "Address already in use"), "refuses: Address already in use"),
    "a name": (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), "no text in UTF-8"),
    "an extra": (ModuleNotFoundError("No module named 'psycopg'", name="psycopg"), "psycopg is not installed"),
    "a fault": (KeyError("x"), "has no error for: KeyError: 'x'"),
    "code that exits": (SystemExit(5), "has no error for: SystemExit: 5"),
}


@each_row("kind", RAISES)
def test_what_comes_up_has_a_cause_and_a_remedy(kind):
    raised, cause = RAISES[kind]
    with pytest.raises(FactfoldError) as error, typed_failures():
        raise raised
    assert cause in error.value.message
    assert error.value.remedy
    assert error.value.__cause__ is raised  # for --debug


@each_row("raised", [BrokenPipeError(32, "Broken pipe"), KeyboardInterrupt(), EOFError()], ids=repr)
def test_what_python_or_typer_ends_by_themselves_passes(raised):
    with pytest.raises(type(raised)), typed_failures():
        raise raised


def test_a_fault_says_how_to_report_it_and_debug_shows_the_traceback(monkeypatch, capsys):
    def broken(self, ctx):
        with typed_failures():
            raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(entry._Commands, "invoke", broken)
    for options in ([], ["--debug"]):
        monkeypatch.setattr(sys, "argv", ["factfold", *options, "doctor"])
        with pytest.raises(SystemExit, match="1"):
            entry.main()
        shown = capsys.readouterr().err
        assert "ZeroDivisionError: a fault of ours" in shown
        assert "repeat the command with --debug, and report its output" in shown
        assert ("in broken" in shown) is bool(options)


def test_a_setting_with_a_null_character_is_refused_with_its_line(tmp_path, monkeypatch):
    (tmp_path / "factfold.toml").write_text('stack = "x"\nstore_url = "a\\u0000b"\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FactfoldError) as refused:
        use_settings_file({})
    assert refused.value.place == "factfold.toml, line 2"
