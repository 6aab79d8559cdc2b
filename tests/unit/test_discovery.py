"""Definitions are found in a package, and named to commands."""

from __future__ import annotations

import importlib
import sys
from datetime import UTC, datetime

import pytest

from eventstore import Subscription
from eventstore.errors import DeclarationError, InvalidArgument
from factfold.cli.entry import main
from factfold.cli.events.subscriptions import load_subscription, parse_start
from factfold.discovery import discovered, service_packages
from tests.commands import factfold
from tests.rows import each_row

FILES = {
    "__init__.py": "",
    "__main__.py": "raise RuntimeError('run')",
    "orders.py": """
from eventstore import Aggregate, event
class Order(Aggregate):
    @event
    class Placed:
        amount: int
""",
    "reactions.py": """
from eventstore import queue, subscription
from {name}.orders import Order
@subscription("order", group="books")
def book(event: Order.Placed) -> None: ...
@queue("order", group="letters")
def write(event: Order.Placed) -> None: ...
""",
    "views/__init__.py": """
from projections import Table, ProjectionGroup, on, view
from {name}.orders import Order
from {name}.reactions import book
orders = Table.from_events(Order, key="id", columns={{"amount": on(Order.Placed).take("amount")}})
@view(key="id")
def amounts(orders):
    return orders
shop = ProjectionGroup("shop", [amounts])
""",
    # Sorted before the home of what it imports.
    "all.py": "from {name}.views import shop\nfrom {name}.orders import Order\n",
    "routes.py": """
from projections import branches, field
from {name}.orders import Order
large = branches(Order, {{"large": field("amount") > 10}}, otherwise="small")
""",
    "broken.py": "import a_package_that_is_not_here",
    # Each of these would fail if it was run.
    "load.py": "from {name}.orders import Order\nprint(Order)\nraise RuntimeError('run')",
    "fill.py": "from eventstore import SqlEventStore\nstore = SqlEventStore('no')\nstore.append('order-1', [])",
    "looped.py": "with open('nowhere') as file:\n    print(file)",
    "single.py": """
from eventstore import Aggregate
class Other(Aggregate):
    pass
def main():
    raise RuntimeError("run")
main()
""",
    "configured.py": """
import logging
from contextlib import suppress
from eventstore import Aggregate
logging.basicConfig()
with suppress(ImportError):
    import a_package_that_is_not_here
log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
class Logged(Aggregate):
    pass
""",
    "guarded.py": "import sys\nif __name__ == '__main__':\n    sys.exit('run')",
    "conftest.py": "raise RuntimeError('a test')",
    "tests/__init__.py": "raise RuntimeError('tests')",
}


@pytest.fixture
def service(tmp_path, monkeypatch, request):
    """A package of a name of its own, in a folder that is the current one."""
    name = f"service_{abs(hash(request.node.name)) % 10**8}"
    for file, text in FILES.items():
        path = tmp_path / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def test_every_definition_is_found_once_where_it_is_defined(service):
    found = discovered(service)
    assert [(one.kind, one.target) for one in found.definitions] == [
        ("projections", f"{service}.views:shop"),
        ("branches", f"{service}.routes:large"),
        ("subscription", f"{service}.reactions:book"),
        ("queue", f"{service}.reactions:write"),
        ("aggregate", f"{service}.configured:Logged"),
        ("aggregate", f"{service}.orders:Order"),
    ]
    assert [one.name for one in found.of("queue", "branches")] == ["large", "write"]


def test_a_module_that_cannot_be_imported_is_told_and_the_others_are_found(service):
    assert discovered(service).failures == {
        f"{service}.broken": "ModuleNotFoundError: No module named 'a_package_that_is_not_here'"
    }


def test_a_script_is_not_run_by_a_look_and_named_with_its_line(service):
    lines = {"fill": 3, "load": 2, "looped": 1, "single": 7}
    found = discovered(service)
    assert found.scripts == {f"{service}.{name}": line for name, line in lines.items()}
    assert not {f"{service}.{name}" for name in lines} & sys.modules.keys()
    assert f"{service}.guarded" in sys.modules


@each_row(
    ("code", "cause"),
    [
        ("import sys\nif sys.path:\n    sys.exit(5)", "SystemExit: 5"),
        ("raise SystemExit", "SystemExit: "),
        ("class Skipped(BaseException): ...\nraise Skipped('not now')", "Skipped: not now"),
    ],
)
def test_a_module_or_a_package_that_ends_the_program_is_one_failure_of_many(service, tmp_path, code, cause):
    module, package = tmp_path / service / "ends.py", tmp_path / service / "inner" / "__init__.py"
    package.parent.mkdir(exist_ok=True)
    module.write_text(code)
    package.write_text(code)
    importlib.invalidate_caches()
    found = discovered(service)
    assert (found.failures[f"{service}.ends"], found.failures[f"{service}.inner"]) == (cause, cause)
    assert len(found.definitions) == 6
    module.write_text("raise KeyboardInterrupt  # longer than the code before, which the cache has")
    with pytest.raises(KeyboardInterrupt):
        discovered(service)


def test_processes_of_the_sample_app_are_found():
    assert [one.target for one in discovered("sample_app.fulfilment").of("process")] == [
        "sample_app.fulfilment.process:Fulfilment"
    ]


def test_a_package_that_is_not_there_is_refused():
    with pytest.raises(DeclarationError, match="there is no package 'nowhere_at_all'"):
        discovered("nowhere_at_all")


def test_the_packages_of_a_folder_are_those_that_may_be_a_service(service, tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    (tmp_path / "scripts").mkdir()
    assert service_packages(tmp_path) == [service]


# ---- what `factfold subscriptions` takes, and what it refuses before it asks anybody


def test_places_to_move_a_group_to_are_read():
    assert parse_start("beginning") == "beginning"
    assert parse_start("end") == "end"
    assert parse_start("0=12,1=30") == {0: 12, 1: 30}
    assert parse_start("2026-03-01T12:00:00Z") == datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "0=x", "=", "2026-03-01"])
def test_a_place_that_is_none_is_refused(text):
    with pytest.raises(InvalidArgument):
        parse_start(text)


def test_a_subscription_is_found_by_module_and_name():
    assert isinstance(load_subscription("tests.integration.booking:book"), Subscription)


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ("no_such_module:x", "no_such_module"),
        ("tests.integration.booking:nothing", "nothing"),
        ("tests.integration.booking", "no subscription"),
        ("tests.integration.booking:TOPIC", "is a str"),
    ],
)
def test_a_name_that_leads_to_no_subscription_is_refused(spec, cause):
    with pytest.raises(DeclarationError, match=cause):
        load_subscription(spec)


def test_an_inbox_is_forgotten_only_where_its_database_is_named():
    done = factfold("subscriptions", "reset", "t", "g", "--to", "end", "--forget")
    assert done.exit_code == 2
    assert "--inbox-url" in done.output


@pytest.mark.parametrize(
    "arguments",
    [["--debug", "subscriptions", "run", "no.such:x"], ["subscriptions", "run", "--debug", "no.such:x"],
     ["subscriptions", "run", "no.such:x", "--debug"]],
)  # fmt: skip
def test_debug_shows_a_traceback_wherever_it_stands(monkeypatch, capsys, arguments):
    shown = _error_of(monkeypatch, capsys, arguments)
    assert "Traceback" in shown or 'File "' in shown
    assert "DeclarationError" in shown
    assert "error: " in shown


def test_without_debug_an_error_is_its_cause_and_remedy(monkeypatch, capsys):
    shown = _error_of(monkeypatch, capsys, ["subscriptions", "run", "no.such:x"])
    assert 'File "' not in shown
    assert "  remedy: " in shown


def _error_of(monkeypatch, capsys, arguments):
    monkeypatch.setattr("sys.argv", ["factfold", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    return capsys.readouterr().err
