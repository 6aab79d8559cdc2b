"""A project of `factfold new` with one personal field, through every command: keys are taken, and nothing shows it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventstore import Dispatcher, SqlEventStore
from factfold.cli.definitions import find_definitions
from factfold.console.parts import Places
from factfold.console.sources import Sources
from factfold.scaffolding import create_project
from tests.commands import factfold
from tests.rows import each_row
from tests.unit.console.conftest import Browser
from tests.waiting import wait_until

NAME, SECRET = "diner", "call Ann under 555"
LOG = Path("up.log")  # in the project's folder
KEYS = "k1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
EDITS = {
    "orders.py": [
        ("from eventstore import Aggregate, command, event", "from typing import Annotated\n\n"
         "from eventstore import Aggregate, Personal, command, event"),
        ("        quantity: int\n\n    @event\n", "        quantity: int\n"
         '        note: Annotated[str, Personal(erased="(erased)")] = ""\n\n    @event\n'),
        ("customer_id: int, quantity: int) ->", 'customer_id: int, quantity: int, note: str = "") ->'),
        ("quantity=quantity))", "quantity=quantity, note=note))"),
    ],
    "views.py": [
        ('"amount": on(Order.Paid)', '"note": on(Order.Placed).take("note"),\n        "amount": on(Order.Paid)'),
        ('"quantity", "amount")', '"quantity", "amount", "note")'),
    ],
}  # fmt: skip
LOOKS = {
    "events tail": ("events", "tail"),
    "events tail as JSON": ("events", "tail", "--json"),
    "streams show": ("streams", "show", "order-o1"),
    "processes list": ("processes", "list"),
    "processes show": ("processes", "show", "payment-o1"),
    "schedule list": ("schedule", "list"),
    "dlq list": ("dlq", "list", f"{NAME}.order.large", "reviews", "--inbox-url", f"sqlite:///{NAME}.db"),
    "store status": ("store", "status"),
    "projections status": ("projections", "status"),
    "schema check": ("schema", "check", f"{NAME}.orders:Order", "--against", "store"),
    "keys rotate": ("keys", "rotate"),
    "store export": ("store", "export", "events.jsonl"),
}


@pytest.fixture(scope="module")
def diner(tmp_path_factory):
    """The project with an order that has a note, in its folder, with the keys in the environment."""
    folder, before = tmp_path_factory.mktemp("projects"), dict(os.environ)
    with pytest.MonkeyPatch.context() as patched:
        create_project(NAME, parent=folder)
        for file, edits in EDITS.items():
            path = folder / NAME / NAME / file
            text = path.read_text()
            for before, after in edits:
                assert before in text, (file, before)
                text = text.replace(before, after, 1)
            path.write_text(text)
        patched.chdir(folder / NAME)
        patched.syspath_prepend(str(folder / NAME))
        patched.setenv("FACTFOLD_MASTER_KEYS", KEYS)
        filled()
        yield folder / NAME
    for name in [name for name in os.environ if name.startswith("FACTFOLD") and name not in before]:
        del os.environ[name]  # commands in this process have set the project's settings


def filled():
    from diner.demo import prepare
    from diner.orders import Order

    from eventstore import MasterKeys

    with SqlEventStore(f"sqlite:///{NAME}.db", source=f"/{NAME}", keys=MasterKeys.parse(KEYS)) as store:
        prepare(store)
        Dispatcher(store).send_or_raise("o1", Order.place, customer_id=7, quantity=500, note=SECRET)


def rows(query):
    with sqlite3.connect(f"{NAME}.db") as database:
        return database.execute(query).fetchall()


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "factfold", *words], capture_output=True, text=True, timeout=200, check=False
    )


@contextmanager
def up():
    with open("up.log", "w") as log:
        process = subprocess.Popen([sys.executable, "-m", "factfold", "up"], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, open("up.log").read()


@pytest.fixture(scope="module")
def served(diner):
    """The same after all parts of the service have done their work."""
    with up() as process:

        def done():
            assert process.poll() is None, open("up.log").read()
            names = {name for (name,) in rows("SELECT name FROM sqlite_master")}
            return (
                "order_details" in names
                and rows("SELECT note FROM order_details") == [(SECRET,)]
                and rows("SELECT order_id FROM reviews") == [("o1",)]
                and rows("SELECT process FROM factfold_processes") != []
            )

        wait_until(done, what=lambda: open("up.log").read())
    return diner


def test_the_service_runs_and_its_view_equals_its_recomputation(served):
    verified = run("projections", "verify", f"{NAME}.views:group")
    assert verified.returncode == 0, verified.stderr
    assert SECRET not in LOG.read_text() + verified.stdout + verified.stderr


def test_a_trace_shows_no_personal_value(served):
    (recorded, *_) = map(json.loads, factfold("events", "tail", "--json").stdout.splitlines())
    traced = factfold("trace", recorded["correlation_id"])
    assert traced.exit_code == 0, traced.output
    assert "order.placed" in traced.output
    assert SECRET not in traced.output


@each_row("words", LOOKS.values(), LOOKS)
def test_a_command_that_looks_shows_no_personal_value(served, words):
    looked = factfold(*words)
    assert looked.exit_code == 0, looked.output
    assert SECRET not in looked.output


def test_the_console_shows_no_personal_value(served):
    url = f"sqlite:///{NAME}.db"
    with Sources(Places(store_url=url, views_url=url), find_definitions([NAME]), every=0.0, patience=30.0) as sources:
        browser = Browser(sources)
        for page in ["/", f"/view?group={NAME}&view=order_details&key.order_id=o1", "/stream?stream=order-o1", "/map"]:
            assert SECRET not in browser.page(page).html
        assert "***" in browser.page(f"/view?group={NAME}&view=order_details").html


def test_an_erased_person_is_gone_from_the_view(served):
    erased = factfold("erase", "o1", "--yes")
    assert erased.exit_code == 0, erased.output
    followed = run("projections", "run", f"{NAME}.views:group", "--once")
    assert followed.returncode == 0, followed.stderr
    assert rows("SELECT note FROM order_details") == [("(erased)",)]
