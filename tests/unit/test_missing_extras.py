"""Without the packages of an extra, each public entry says in one line what to install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from eventstore.extras import EXTRAS, MissingExtra, explained

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
