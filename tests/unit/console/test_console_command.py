"""The command of the console, its modules, and the definitions that it shows."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eventstore.errors import DeclarationError
from factfold.cli.definitions import find_definitions
from tests.commands import factfold
from tests.unit.console import teashop
from tests.unit.console.conftest import TEASHOP
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]


@contextmanager
def running(*arguments, cwd):
    """The command's process, and the URL that it printed."""
    command = [sys.executable, "-m", "factfold", "console", *arguments, "--port", "0", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes) as process:
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(30)


def answer(url, path, **headers):
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)) as connection:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as found:
            return found.status, dict(found.getheaders()), found.read().decode()


def test_the_printed_url_opens_what_the_file_of_the_folder_names_and_a_signal_ends_the_process(shop):
    url = f"sqlite:///{shop}"
    (shop.parent / "factfold.toml").write_text(f'store_url = "{url}"\nviews_url = "{url}"\n')
    with running(TEASHOP, cwd=shop.parent) as (process, printed):
        parts = urlsplit(printed)
        assert parts.hostname == "127.0.0.1"
        status, headers, _ = answer(printed, f"{parts.path}?{parts.query}")
        assert status == 303
        cookie = headers["set-cookie"].partition(";")[0]

        def watched():
            return json.loads(answer(printed, "/api/overview", Cookie=cookie)[2])["watched"]

        assert ("event store", "healthy") in [(one["name"], one["health"]) for one in wait_until(watched)]
        status, _, text = answer(printed, "/view", Cookie=cookie)
        assert (status, "order_details" in text) == (200, True)
        assert answer(printed, "/")[0] == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert parts.query.removeprefix("token=") not in process.stderr.read()


def test_a_port_that_is_taken_is_refused_with_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = factfold("console", "--port", str(taken.getsockname()[1]))
    assert "cannot listen on 127.0.0.1" in str(result.exception)
    assert "--port 0" in result.exception.remedy


# ---- what a target stands for


def test_a_module_stands_for_everything_that_it_declares():
    found = find_definitions([TEASHOP])
    assert found.groups == {f"{TEASHOP}:group": teashop.group}
    assert set(found.branches) == {f"{TEASHOP}:order_branches"}
    assert set(found.subscriptions) == {f"{TEASHOP}:review"}
    assert set(found.processes) == {f"{TEASHOP}:Payment"}
    assert set(found.aggregates) == {f"{TEASHOP}:Order", f"{TEASHOP}:Person"}


def test_one_definition_stands_for_itself():
    assert [one.target for one in find_definitions([f"{TEASHOP}:review"]).definitions] == [f"{TEASHOP}:review"]


def test_what_two_targets_name_is_found_once():
    twice = find_definitions([TEASHOP, f"{TEASHOP}:group", TEASHOP])
    assert twice.definitions == find_definitions([TEASHOP]).definitions


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a broken module, a module inside a package, and one that runs when it is imported."""
    (tmp_path / "kiosk" / "inner").mkdir(parents=True)
    (tmp_path / "kiosk" / "__init__.py").write_text("")
    (tmp_path / "kiosk" / "broken.py").write_text("import nothing_of_the_kind")
    (tmp_path / "kiosk" / "__main__.py").write_text("raise SystemExit(5)")
    (tmp_path / "kiosk" / "inner" / "__init__.py").write_text("")
    (tmp_path / "kiosk" / "inner" / "ships.py").write_text(f"from {TEASHOP} import review")
    monkeypatch.syspath_prepend(tmp_path)
    yield "kiosk"
    for name in [name for name in sys.modules if name.partition(".")[0] == "kiosk"]:
        del sys.modules[name]


def test_a_package_stands_for_its_modules_and_a_broken_one_is_a_problem(package):
    found = find_definitions([package])
    assert set(found.subscriptions) == {"kiosk.inner.ships:review"}
    ((module, cause),) = found.failures.items()
    assert (module, "nothing_of_the_kind" in cause) == ("kiosk.broken", True)


def test_a_broken_module_that_is_named_ends_the_command(package):
    with pytest.raises(DeclarationError, match=r"kiosk\.broken cannot be imported"):
        find_definitions([f"{package}.broken"])


# ---- a console without a PACKAGE


PROGRAM = """
import json, sys
from factfold.console.pages.overview import overview
from factfold.console.parts import Places
from factfold.console.sources import Sources

url = sys.argv[1]
with Sources(Places(store_url=url, views_url=url), every=0.0, patience=30.0) as sources:
    before = set(sys.modules)
    found = overview(sources.look(), {})
own = ("cdc", "eventstore", "factfold", "projections")
late = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in own)
print(json.dumps([late, [one.problem.cause for one in found.empty]]))
"""


def test_no_thread_imports_a_module_of_ours_while_others_do(shop):
    command = [sys.executable, "-c", PROGRAM, f"sqlite:///{shop}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    late, problems = json.loads(ran.stdout.splitlines()[-1])
    assert late == []
    assert [cause for cause in problems if "reading failed" in cause] == []
