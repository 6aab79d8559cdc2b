"""Without the packages of an extra, each public entry says in one line what to install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
ENTRIES = {
    "postgres": [
        f"from eventstore import SqlEventStore; SqlEventStore({POSTGRES})",
        f"from eventstore import AsyncSqlEventStore; AsyncSqlEventStore({POSTGRES})",
        f"from projections.stores.opening import open_table_store; open_table_store({POSTGRES})",
        f"{ON_KAFKA}; Environment.open(Settings(), views_url={POSTGRES})",
    ],
    "async": ["from eventstore import AsyncSqlEventStore; AsyncSqlEventStore('sqlite:///shop.db')"],
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
    "cdc": ["from cdc import ConnectClient"],
    "spark": [
        "from projections import Environment; Environment.embedded('shop.db')",
        "from projections import rebuild",
        "from projections import open_session",
        "from projections import verify",
        "from projections.spark.session import open_session",
    ],
    "metrics": ["from eventstore.metrics import serve_metrics", "from projections import RunMetrics"],
    "cli": ["from factfold.stack import LocalStack; LocalStack()"],
}

# Runs one entry after another; of each it prints the error, and its class.
PROGRAM = """
import sys

sys.modules.update(dict.fromkeys({absent!r}))  # None there: an import says that there is no such module
for entry in {entries!r}:
    try:
        exec(entry, {{"__name__": "__main__"}})
    except SystemExit as ended:
        print("exit", ended.code)
    except BaseException as error:
        print(type(error).__name__, getattr(error, "message", error), getattr(error, "remedy", None), sep=" | ")
    else:
        print("nothing was refused")
"""


def refusals(extra: str) -> list[str]:
    program = PROGRAM.format(absent=EXTRAS[extra], entries=ENTRIES[extra])
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


@pytest.mark.parametrize("extra", sorted(ENTRIES))
def test_each_entry_names_the_extra_that_is_missing(extra: str) -> None:
    for line in refusals(extra):
        kind, message, remedy = line.split(" | ")
        assert (kind, remedy) == ("MissingExtra", f"pip install 'factfold[{extra}]'")
        assert message in {f"the package {package} is not installed" for package in EXTRAS[extra]}


def test_the_command_without_its_extra_ends_with_cause_and_remedy() -> None:
    program = "import sys; sys.modules['typer'] = None; from factfold.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "error: the package typer is not installed\n  remedy: pip install 'factfold[cli]'\n"


def test_a_command_whose_extra_is_missing_ends_with_cause_and_remedy() -> None:
    program = (
        "import sys; sys.modules['confluent_kafka'] = None; from factfold.cli import main;"
        "sys.argv = ['factfold', 'subscriptions', 'lag', 'order', 'g']; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == (
        "error: the package confluent_kafka is not installed\n  remedy: pip install 'factfold[kafka]'\n"
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


@pytest.mark.parametrize(
    ("absent", "module"),
    [
        (("httpx2", "authlib"), "projections.spark.reading.kafka_source"),
        (("confluent_kafka", "requests", "httpx2"), "projections.spark.reading.store_source"),
        (("confluent_kafka", "requests", "httpx2"), "projections.lifecycle.rebuild"),
        (("confluent_kafka", "requests", "httpx2"), "projections.lifecycle.runner"),
        (("confluent_kafka", "pyspark"), "cdc.connectors.outbox"),
    ],
)
def test_what_an_extra_is_not_for_does_without_it(absent: tuple[str, ...], module: str) -> None:
    program = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); import {module}"
    subprocess.run([sys.executable, "-c", program], check=True)
