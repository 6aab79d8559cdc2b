"""`factfold preflight`: each mistake that is planted in a small service is found, and named in one line."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
from base64 import b64encode
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import sqlalchemy

from eventstore import NO_STREAM, Dispatcher, MasterKeys, SqlEventStore
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.models import NEWEST
from eventstore.processes.engine import ProcessEngine
from eventstore.snapshots import Snapshots
from factfold.cli.definitions import find_definitions
from factfold.console.parts import Places
from factfold.discovery import Discovery
from factfold.preflight.against import against
from factfold.preflight.findings import Checked, findings_of, green
from tests.commands import factfold
from tests.unit.planted_services import importing

SERVICE = """
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from eventstore import Aggregate, Personal, command, event, subscription
from eventstore.processes import Process, reacts, starts, times_out
from projections import branches, field


class Way(StrEnum):
    POST = "post"
    BIKE = "bike"


class Order(Aggregate):
    status: str = "new"
    quantity: int = 0

    @event
    class Placed:
        sku: str
        quantity: int
        way: Way

    @event
    class Paid:
        amount: int

    @command
    def place(self, *, sku: str, quantity: int, way: Way) -> None:
        self.emit(self.Placed(sku=sku, quantity=quantity, way=way))

    @command
    def pay(self, *, amount: int) -> None:
        self.emit(self.Paid(amount=amount))

    def on_placed(self, event: Placed) -> None:
        self.status, self.quantity = "placed", event.quantity

    def on_paid(self, event: Paid) -> None:
        self.status = "paid"


class Person(Aggregate):
    name: str = ""

    @event
    class Registered:
        name: Annotated[str, Personal(erased="(erased)")]

    def on_registered(self, event: Registered) -> None:
        self.name = event.name


class Ticket(Aggregate):
    @event
    class Opened:
        weight: int


ticket_branches = branches(Ticket, {"big": field("weight") > 100, "huge": field("weight") > 900}, otherwise="rest")


@subscription("ticket.big", group="reviews", guarantee="at-least-once")
def review(event: Ticket.Opened) -> None: ...


@subscription("ticket.huge", group="calls", guarantee="at-least-once")
def call(event: Ticket.Opened) -> None: ...


class Payment(Process, sends=[Order]):
    by: str = "hand"

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.timeout("payment", after=timedelta(days=3))

    @reacts(Order.Paid)
    def paid(self, event: Order.Paid) -> None:
        self.done()

    @times_out("payment")
    def unpaid(self) -> None:
        self.done()
"""

CONNECTORS = """
[[connector]]
type = "postgres"
name = "rows"
host = "db"
user = "cdc"
password = "${file:/secrets/db:password}"
topic_prefix = "shop"
database = "shop"
tables = ["public.orders"]
"""

# What is planted: the text that is replaced, its replacement, the level, and the words that the finding's line has.
PLANTED = {
    "removed field": ("        sku: str\n", "", "yellow", "order.placed.sku: the code has no such field"),
    "narrowed type": ("        amount: int\n", "        amount: bool\n", "red",
                      "order.paid.amount: it is long there, and boolean today, in 1 stored events"),
    "enum member gone": ('    BIKE = "bike"\n', "", "red", "order.placed.way: it may be 'bike' there"),
    "upcaster that raises": (
        "    @event\n    class Paid", "    @event(upcasters={1: [lambda old: {'amount': old['sum']}]})\n    class Paid",
        "red", "order.paid: 1 events of version 1: order-o1@1 cannot be read: KeyError: 'sum' (at ",
    ),
    "aggregate that no longer folds": (
        '        self.status = "paid"\n', "        self.status = event.amounts\n", "red",
        "order.paid: 1 events of version 1: order-o1@1 does not fold: AttributeError",
    ),
    "handler that folds another state": (
        '        self.status = "paid"\n', '        self.status = "settled"\n', "red",
        "snapshots of order: 1 states are not those that the code folds, such as order-o1",
    ),
    "state of another shape": ("    quantity: int = 0\n", '    quantity: str = ""\n', "yellow",
                               "snapshots of order: 1 have another shape"),
    "type that no class claims": (
        "    @event\n    class Paid", '    @event(name="order.settled")\n    class Paid', "red",
        "order.paid: no class claims the type",
    ),
    "handler that a placeholder breaks": (
        "        self.name = event.name\n", "        self.name = event.name.split()[1]\n", "yellow",
        "person.registered: 1 events of version 1: person-p1@0 does not fold: IndexError",
    ),
    "process step gone": (
        '    @times_out("payment")\n    def unpaid(self)', '    @times_out("reminder")\n    def unpaid(self)', "red",
        "process payment: 1 instances wait, such as o2, and version 1 of the code lacks timer payment",
    ),
    "state of a process that another type reads": (
        '    by: str = "hand"', "    by: Way = Way.POST", "red",
        "version 1 of the code lacks a state that it can read: a str does not fit state field by of Payment",
    ),
    "process version gone": ("sends=[Order])", "sends=[Order], version=2)", "red", "lacks version 1 of its code"),
    "unhandled event type": (
        "    class Paid:", "    class Returned:\n        why: str\n\n    @event\n    class Paid:", "yellow",
        "event type order.returned: no view, subscription or process reads it",
    ),
    "topic that nothing fills": (
        '"ticket.huge", group', '"ticket.vast", group', "not checked", "topics ticket.vast: nothing here fills them"
    ),
    "branch that nothing reads": (
        '"ticket.huge", group', '"ticket.big", group', "yellow", "topic ticket.huge: nothing here reads it"
    ),
    "handler of a type that does not come": (
        "def call(event: Ticket.Opened)", "def call(event: Order.Placed)", "yellow",
        "subscription calls: it handles order.placed, which comes by order and not by ticket.huge",
    ),
    "module that does not import": ("class Way(StrEnum)", "class Way(Missing)", "red", "module broken_"),
}  # fmt: skip


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    with importing(tmp_path_factory.mktemp("packages")) as made_of:
        yield made_of


@pytest.fixture(scope="module")
def filled(load, tmp_path_factory):
    """A store with what the deployed code wrote: o1 is paid and has a snapshot, and the process of o2 waits."""
    service = importlib.import_module(f"{load(SERVICE, 'deployed')}.service")
    path = tmp_path_factory.mktemp("stores") / "shop.db"
    with SqlEventStore(f"sqlite:///{path}", keys=MasterKeys.parse(f"k:{b64encode(bytes(32)).decode()}")) as store:
        store.create_tables()
        store.append("person-p1", [service.Person.Registered(name="Ann Lee")], expected=NO_STREAM)
        shop = Dispatcher(store, snapshots=Snapshots(store, every=2))
        for order in ("o1", "o2"):
            shop.send_or_raise(order, service.Order.place, sku="tea", quantity=2, way=service.Way.BIKE)
        shop.send_or_raise("o1", service.Order.pay, amount=9)
        with Database(store.engine, store.tables).writing() as tx:
            engine = ProcessEngine(store, [service.Payment])
            for event in store.read_all(category="order"):
                engine.take_events(tx, [event], now=event.time)
    return path


@pytest.fixture
def store_file(filled, tmp_path):
    return shutil.copy(filled, tmp_path / "shop.db")


def preflight(package, file, *more):
    return factfold("preflight", package, "--store-url", f"sqlite:///{file}", *more)


def test_nothing_is_found_where_nothing_is_wrong_and_nothing_is_written(load, store_file):
    before = store_file.read_bytes()
    result = preflight(load(f"print('loaded')\n{SERVICE}", "same"), store_file, "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["safe"]) == (0, True)
    assert {one["level"] for one in report["findings"]} == {"green"}
    forms = {one["subject"]: one["cause"] for one in report["findings"]}
    assert forms["order.placed"] == "version 1: 2 stored events fit"
    assert store_file.read_bytes() == before


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_named(load, store_file, mistake):
    old, new, level, words = PLANTED[mistake]
    assert SERVICE.count(old) == 1
    result = preflight(load(SERVICE.replace(old, new), "broken"), store_file)
    assert [line for line in result.stdout.splitlines() if line.startswith(level) and words in line], result.output
    assert result.exit_code == (3 if level == "red" else 0)


def test_a_pending_migration_is_red_and_events_are_not_checked(load, store_file):
    with closing(sqlite3.connect(store_file)) as database, database:
        database.execute("update factfold_migrations set version_num = '0006'")
    result = preflight(load(SERVICE, "same"), store_file)
    assert result.exit_code == 3
    needs = f"the tables are at version 0006, this release needs {NEWEST}"
    assert f"red         migrations: {needs}" in result.stdout
    assert "not checked events: the store's tables are not up to date" in result.stdout


def test_a_setting_with_a_wrong_value_is_red(load, store_file, monkeypatch):
    monkeypatch.setenv("FACTFOLD_KAFKA__SECURITY_PROTOCOL", "secret-word")
    result = preflight(load(SERVICE, "same"), store_file)
    assert result.exit_code == 3
    assert "red         settings: FACTFOLD_KAFKA__SECURITY_PROTOCOL: " in result.stdout
    assert "secret-word" not in result.output


def test_a_package_of_another_version_is_red(load, store_file, monkeypatch):
    needed = ['sqlalchemy==1.4; extra == "x"', "absent>=1"]
    monkeypatch.setattr("factfold.preflight.delivery.requires", lambda _: needed)
    result = preflight(load(SERVICE, "same"), store_file)
    found = f"red         package sqlalchemy: {sqlalchemy.__version__} is installed, and Factfold "
    assert [line for line in result.stdout.splitlines() if line.startswith(found) and line.endswith(" needs ==1.4")]
    assert result.exit_code == 3
    assert "absent" not in result.stdout


def folder_of(package):
    return Path(importlib.util.find_spec(package).origin).parent.parent


def git(folder, *words):
    named = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True)


def committed(project, package, text=SERVICE):
    """A package of a project, with its repository and one commit. Returns the package's folder."""
    folder = project / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "service.py").write_text(text)
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "deployed")
    return folder


@pytest.mark.parametrize("kind", ["flat", "src", "wheel"])
def test_states_are_compared_with_those_of_the_deployed_code(store_file, tmp_path, monkeypatch, kind):
    """With `src`, the package of the present code is found by the environment, as by an editable install."""
    name, project = f"shelf_{kind}", tmp_path / "project"
    package = committed(project, f"src/{name}" if kind == "src" else name, f"print('loaded')\n{SERVICE}")
    wheel = shutil.make_archive(str(tmp_path / "shelf"), "zip", package.parent, name)
    deployed = shutil.move(wheel, tmp_path / "shelf.whl") if kind == "wheel" else "HEAD"
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    compared = ["--sample", "1000", "--against", str(deployed)]
    same = preflight(name, store_file, *compared, "--all")
    assert f"green       states: 3 streams have the states of {deployed}" in same.stdout, same.output
    text = SERVICE.replace('self.status = "paid"', 'self.status = "settled"').replace(
        "status: str", "note: int = 1\n    status: str", 1
    )
    (package / "service.py").write_text(text)
    changed = preflight(name, store_file, *compared)
    words = f'order.status: 1 states differ from those of {deployed}, such as order-o1: "paid" became "settled"'
    assert [line for line in changed.stdout.splitlines() if line.startswith("yellow") and words in line], changed.output
    added = "order.note: 2 states differ from those of"
    assert f"yellow      {added} {deployed}, such as order-o1: only the present code has the field" in changed.stdout
    assert "Ann Lee" not in changed.output


def test_code_that_is_elsewhere_or_does_not_import_is_not_compared(load, store_file, tmp_path, monkeypatch):
    committed(tmp_path / "project", "shelf_broken", f"{SERVICE}\nraise ValueError('gone')")
    monkeypatch.chdir(tmp_path / "project")
    present = load(SERVICE, "present")
    for name, cause in ((present, f"it has no module {present}: that of "), ("shelf_broken", "ValueError: gone")):
        monkeypatch.setenv("PYTHONPATH", f"{folder_of(present)}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        checked = Checked(
            Discovery(targets=(name,)), Places(store_url=f"sqlite:///{store_file}"), ExitStack(), against="HEAD"
        )
        with checked.opened:
            (finding,) = against(checked)
        assert (finding.level, finding.subject) == ("red", "states: not compared")
        assert cause in finding.cause


@pytest.mark.parametrize("deployed", ["no-such-tag", "no-such.whl", "--output=written"])
def test_code_that_is_not_there_is_named_and_no_option_of_git(load, store_file, tmp_path, monkeypatch, deployed):
    committed(tmp_path / "project", "shelf_option")
    monkeypatch.chdir(tmp_path / "project")
    result = preflight(load(SERVICE, "same"), store_file, f"--against={deployed}")
    assert f"red         states: not checked: there is no code of '{deployed}'" in result.stdout, result.output
    assert (result.exit_code, Path("written").exists()) == (3, False)


@pytest.mark.parametrize(
    ("side", "finding"),
    [
        (["--store-url", "sqlite:///no-such.db"], "event store: not checked: "),
        (["--connectors", "no-such.toml"], "connectors: not checked: "),
        ([], ""),
        (["--views-url", "sqlite:///no-such.db"], ""),
    ],
)
def test_a_named_side_that_is_not_reached_is_red_and_without_data_nothing_is_safe(
    load, tmp_path, monkeypatch, side, finding
):
    monkeypatch.chdir(tmp_path)
    result = factfold("preflight", load(SERVICE, "same"), *side)
    last = result.stdout.splitlines()[-1]
    if finding:
        assert f"red         {finding}" in result.stdout, result.output
        assert (result.exit_code, last.partition(":")[0]) == (3, "do not deploy")
    else:
        assert (result.exit_code, last.partition(":")[0]) == (0, "not known to be safe, as no data was looked at")


def test_a_connector_whose_named_side_does_not_answer_is_red(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("connectors.toml").write_text(CONNECTORS)
    result = factfold(
        "preflight", load(SERVICE, "same"), "--connectors", "connectors.toml", "--connect-url", "http://127.0.0.1:1"
    )
    assert "red         connector rows: worker: " in result.stdout, result.output


def test_what_the_services_code_raises_is_a_finding_and_others_stay(load):
    def raises(checked):
        yield green("first", "found")
        raise ValueError("boom")

    with ExitStack() as opened:
        checked = Checked(find_definitions([load(SERVICE, "same")]), Places(), opened)
        found = list(findings_of(checked, {"one": raises, "two": lambda _: [green("last", "found")]}))
    assert [(one.level, one.subject) for one in found[1:]] == [
        ("green", "first"), ("red", "one: not checked"), ("green", "last"),
    ]  # fmt: skip
    assert found[2].code == "code-raises"
    assert found[2].cause.startswith(f"ValueError: boom (at {__file__}:")


def test_deployed_code_that_does_not_fold_is_not_compared(load, store_file, tmp_path):
    wheel = shutil.move(shutil.make_archive(str(tmp_path / "x"), "zip", tmp_path, "shop.db"), tmp_path / "x.whl")
    result = preflight(load(SERVICE, "same"), store_file, "--against", str(wheel))
    assert "red         states: not compared: there is no module" in result.stdout, result.output
