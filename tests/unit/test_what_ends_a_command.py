"""What ends a command has a cause and a remedy; a missing extra is named."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from eventstore import SqlEventStore
from eventstore.errors import FactfoldError
from eventstore.extras import EXTRAS, MissingExtra, explained
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


# ---- without the packages of an extra, each public entry says in one line what to install


TAKE = """
from eventstore import Aggregate, Settings, event, open_subscriber, subscription
class Order(Aggregate):
    @event
    class Placed:
        n: int
@subscription("order", group="g")
def take(event: Order.Placed) -> None: ...
with open_subscriber(take, settings=Settings()):
    pass
"""
ON_KAFKA = "from projections import Environment; from eventstore import Settings"
POSTGRES = "'postgresql://ann:secret@host/shop'"
# In this order: one process runs them, and what a later one loads may be what an earlier one lacks.
ENTRIES = {
    "kafka": [
        "from eventstore.relay import Relay",
        "from eventstore.inspection import TopicLog",
        "from eventstore.kafka.admin import ensure_topics",
        "from projections import open_router",
        TAKE,
    ],
    "registry": [
        "from eventstore.kafka import ConfluentRegistry",
        "from eventstore.kafka.confluent_registry import configured_registry",
    ],
    "spark": [
        "from projections import Environment; Environment.embedded('shop.db')",
        "from projections import rebuild",
        "from projections import open_session",
        "from projections import verify",
        "from projections.spark.session import open_session",
    ],
    "postgres": [
        f"from eventstore import SqlEventStore; SqlEventStore({POSTGRES})",
        f"from eventstore import AsyncSqlEventStore; AsyncSqlEventStore({POSTGRES})",
        f"from projections.stores.opening import open_table_store; open_table_store({POSTGRES})",
        f"{ON_KAFKA}; Environment.open(Settings(), views_url={POSTGRES})",
    ],
    "async": ["from eventstore import AsyncSqlEventStore; AsyncSqlEventStore('sqlite:///shop.db')"],
    "cdc": ["from cdc import ConnectClient"],
    "metrics": ["from eventstore.metrics import serve_metrics", "from projections import RunMetrics"],
    "cli": ["from factfold.stack import LocalStack; LocalStack()"],
}

# Runs one entry after another; of each it prints the extra, the error's class and what it says.
PROGRAM = """
import sys

for extra, absent, entries in {rows!r}:
    sys.modules.update(dict.fromkeys(absent))  # None there: an import says that there is no such module
    for entry in entries:
        try:
            exec(entry, {{"__name__": "__main__"}})
        except BaseException as error:
            said = (getattr(error, "message", error), getattr(error, "remedy", None))
            print(extra, type(error).__name__, *said, sep=" | ")
        else:
            print(extra, "nothing was refused", entry, None, sep=" | ")
    for name in absent:
        del sys.modules[name]
"""
ROWS = [(extra, EXTRAS[extra], entries) for extra, entries in ENTRIES.items()]


def test_each_entry_names_the_extra_that_is_missing() -> None:
    program = PROGRAM.format(rows=ROWS)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.count("\n") == sum(map(len, ENTRIES.values()))
    wrong = []
    for line in ran.stdout.splitlines():
        extra, kind, message, remedy = line.split(" | ")
        absent = {f"the package {package} is not installed" for package in EXTRAS[extra]}
        if (kind, remedy, message in absent) != ("MissingExtra", f"pip install 'factfold[{extra}]'", True):
            wrong.append(line)
    assert wrong == []


# By the package that is missing: the words of a command, and the extra that it names.
ENDED = {
    "typer": ([], "cli"),
    "starlette": (["console"], "console"),
    "confluent_kafka": (["subscriptions", "lag", "order", "g"], "kafka"),
}
COMMANDS = f"""
import sys
from factfold.cli import main
for package, (words, _) in {ENDED!r}.items():
    sys.modules[package], sys.argv = None, ["factfold", *words]
    try:
        main()
    except SystemExit as ended:
        sys.stderr.write(f"{{ended.code}}\\n")
    del sys.modules[package]
"""


def test_a_command_whose_extra_is_missing_ends_with_cause_and_remedy() -> None:
    ran = subprocess.run([sys.executable, "-c", COMMANDS], capture_output=True, text=True, check=True)
    assert ran.stderr == "".join(
        f"error: the package {package} is not installed\n  remedy: pip install 'factfold[{extra}]'\n1\n"
        for package, (_, extra) in ENDED.items()
    )


def test_every_command_loads_without_any_extra_but_that_of_the_command_line() -> None:
    absent = [package for extra, packages in EXTRAS.items() if extra != "cli" for package in packages]
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r}));"
        "from factfold.cli.entry import whole_program; print(len(whole_program().commands))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert int(ran.stdout) > 20


def test_a_missing_extra_is_an_import_error_too() -> None:
    assert issubclass(MissingExtra, ImportError)
    other = ModuleNotFoundError("No module named 'shop'", name="shop")
    assert explained(other) is other


def test_every_extra_that_can_be_missing_is_known() -> None:
    """`all`, `dev` and `parquet` aside: the last one's package is Spark's too, and its error names it."""
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(declared) - {"all", "dev", "parquet"}
    assert declared["all"] == [f"factfold[{','.join(one for one in declared if one not in ('all', 'dev'))}]"]


# In this order: the next row lacks less, and what is loaded stays.
NOT_FOR = [
    (("confluent_kafka", "requests", "httpx2", "authlib", "pyspark"), "cdc.connectors.postgres"),
    (("confluent_kafka", "requests", "httpx2", "authlib"), "projections.spark.reading.store_source"),
    (("confluent_kafka", "requests", "httpx2", "authlib"), "projections.lifecycle.rebuild"),
    (("confluent_kafka", "requests", "httpx2", "authlib"), "projections.lifecycle.runner"),
    (("httpx2", "authlib"), "projections.spark.reading.kafka_source"),
]


def test_what_an_extra_is_not_for_does_without_it() -> None:
    program = f"""
import importlib, sys
for absent, module in {NOT_FOR!r}:
    sys.modules.update(dict.fromkeys(absent))
    importlib.import_module(module)
    for name in absent:
        del sys.modules[name]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
