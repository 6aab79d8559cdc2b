"""Options of commands: keys, metrics, targets and their completion."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from cdc.errors import InvalidConnector
from docs.commands_page import commands
from eventstore import SqlEventStore, SqlKeyStore
from eventstore.errors import DeclarationError, FactfoldError, StoreNotPrepared
from eventstore.extras import MissingExtra
from eventstore.metrics import serve_metrics
from eventstore.metrics.families import RunnerMetrics
from factfold.cli.cdc.connectors import declared
from factfold.cli.definitions import ModuleBroken, complete_package, completes, load_aggregate
from factfold.cli.events.subscriptions import load_subscription
from factfold.cli.keys import StoredKeys
from factfold.cli.running import Served
from factfold.cli.service.processes import load_process
from factfold.cli.views import projections as command_line
from factfold.cli.views.projections import load_group
from tests.commands import factfold, program
from tests.conformance.ticket_batches import GROUP
from tests.errors import raises
from tests.rows import each_row

MASTER = "one:" + "A" * 43 + "="


@pytest.mark.parametrize(("master_keys", "url"), [(None, None), (MASTER, None), (None, "sqlite://")])
def test_without_master_keys_or_a_store_there_are_none(master_keys: str | None, url: str | None) -> None:
    with StoredKeys(master_keys, url).opened() as keys:
        assert keys is None


def test_keys_that_are_none_are_refused() -> None:
    with pytest.raises(DeclarationError, match="are not name:base64"), StoredKeys("one:short", "sqlite://").opened():
        pass


@pytest.mark.parametrize("keys_url", [None, "own"])
def test_the_file_of_the_embedded_road_holds_its_own_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_url: str | None
) -> None:
    views, own = f"sqlite:///{tmp_path}/views.db", f"sqlite:///{tmp_path}/keys.db"
    for url in (views, own):
        with SqlEventStore(url) as store:
            store.create_tables()
    seen: list[Any] = []

    class Opened:
        @staticmethod
        def embedded(path: Path, **options: Any) -> Opened:
            seen.append(options["keys"])
            return Opened()

        def __enter__(self) -> Opened:
            return self

        def __exit__(self, *exception: object) -> None:
            assert seen[0].erasures() == 0, "the keys are open for as long as the environment is"

    monkeypatch.setattr("projections.Environment", Opened, raising=False)
    monkeypatch.setattr("factfold.cli.views.projections.spark_jars", list)
    given = own if keys_url else None
    with command_line.opened_environment(GROUP, command_line.Place(views, "1g", StoredKeys(MASTER, given))):
        (keys,) = seen
    assert isinstance(keys, SqlKeyStore)
    assert keys.engine.url.database == (own if keys_url else views).removeprefix("sqlite:///")


# ---- every command that runs for long serves metrics by the same pair of options


RUN_FOR_LONG = {
    "archive run", "branches run", "cdc supervise", "processes run", "projections run", "relay run",
    "subscriptions run", "watch run",
}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return {" ".join(words): command for words, command in commands(program())}


def options(command):
    return {name: option for option in command.params for name in option.opts}


def test_each_command_that_runs_for_long_has_the_options(found):
    served = {path for path, command in found.items() if "--metrics-port" in options(command)}
    assert served == RUN_FOR_LONG
    assert {path for path in found if path.endswith(" run")} <= served


def test_the_options_are_the_same_everywhere(found):
    told = {
        tuple((name, options(found[path])[name].help, options(found[path])[name].envvar) for name in pair)
        for pair in [("--metrics-port", "--metrics-host")]
        for path in RUN_FOR_LONG
    }
    assert len(told) == 1
    assert {envvar for _, _, envvar in told.pop()} == {"FACTFOLD_METRICS_PORT", "FACTFOLD_METRICS_HOST"}


def test_without_a_port_nothing_is_made():
    with Served(None).metrics(lambda: pytest.fail("made")) as metrics:
        assert metrics is None


def test_a_port_that_is_taken_ends_the_command():
    with serve_metrics(RunnerMetrics("test", "t"), port=0) as port:
        with raises(FactfoldError, code="port-taken"), Served(port).metrics(lambda: RunnerMetrics("test", "t")):
            pass


# ---- what a command says of a definition that is not there


BROKEN = "import a_package_that_is_not_here\n"


@pytest.mark.parametrize(
    ("load", "spec", "says", "remedy"),
    [
        (load_group, "nowhere.views:shop", "there is no module 'nowhere.views'", "for example shop.views:shop"),
        (load_group, "sample_app.views:shop_view", "no projection group 'shop_view': it has shop_views, time_views",
         "name one of them: sample_app.views:shop_views"),
        (load_group, "sample_app.views", "names a module and no projection group in it: it has shop_views",
         "name one of them: sample_app.views:shop_views"),
        (load_group, "sample_app.orders:Order", "no projection group in sample_app.orders",
         "name one, for example shop.views:shop"),
        (load_aggregate, "sample_app.orders:Oder", "no aggregate 'Oder': it has Order", "sample_app.orders:Order"),
        (load_process, "tests.unit.eventstore.fulfilment", "names a module and no process in it", ":Fulfilment"),
        (load_group, "shop/views.py:group", "no module 'shop/views.py'", "write it with dots: shop.views:group"),
        (load_process, "tests.unit.eventstore.fulfilment:Order", "is no process: it has Fulfilment", "Fulfilment"),
        (load_subscription, ":review", "there is no module ''", "for example shop.fraud:review"),
    ],
)  # fmt: skip
def test_a_definition_that_is_not_there_is_told_from_what_is(load, spec, says, remedy):
    with pytest.raises(DeclarationError) as error:
        load(spec)
    assert says in error.value.message
    assert error.value.remedy.endswith(remedy)


@each_row("code", ["import sys; sys.exit(5)", "raise SystemExit", "raise type('Skipped', (BaseException,), {})"])
def test_a_package_that_ends_the_program_is_named_like_any_module(tmp_path, monkeypatch, code):
    name = f"ending_{len(code)}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(code)
    (tmp_path / name / "orders.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    done = factfold("schema", "check", f"{name}.orders:Order", "--store-url", "sqlite://")
    assert isinstance(done.exception, ModuleBroken), done
    assert f"module {name} " in done.exception.message


def test_a_module_that_cannot_be_imported_is_not_taken_for_a_missing_definition(tmp_path, monkeypatch):
    (tmp_path / "broken_service.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeclarationError, match="broken_service cannot be imported: No module named 'a_package"):
        load_aggregate("broken_service:Order")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("class Order:\n    Paid = 1\n\nOrder.Payed\n", r"has no attribute 'Payed'\. Did you mean 'Paid'\?"),
        ("\n\n\nraise ValueError('half written')\n", "ValueError: half written"),
        ("\n\n\n)\n", "SyntaxError: unmatched"),
        ("import sys\n\n\nsys.exit(5)\n", "ends the program when it is imported: exit code 5"),
    ],
)
def test_code_that_fails_is_said_with_its_line(tmp_path, monkeypatch, code, says):
    (tmp_path / "failing_service.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleBroken, match=says) as error:
        load_aggregate("failing_service:Order")
    assert error.value.place == f"{tmp_path / 'failing_service.py'}:4"


def test_a_module_without_the_package_of_an_extra_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "view_service.py").write_text("from pyspark.sql import functions\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
    with pytest.raises(MissingExtra) as error:
        load_aggregate("view_service:Order")
    assert error.value.remedy == "pip install 'factfold[spark]'"


def test_what_is_no_connector_is_refused_before_any_worker_is_asked():
    with pytest.raises(InvalidConnector, match="gives a ProjectionGroup, and no connector"):
        declared("sample_app.views:shop_views")


# ---- what a shell completes


# Key stores, tables, connectors and functions that prepare a store are values of any kind.
OF_ANY_KIND = {"key_store", "tables", "reference", "prepare"}
NOISY = """
from eventstore import Aggregate, event
print("a module that prints")

class Order(Aggregate):
    @event
    class Placed:
        sku: str
"""


NAMING_A_DEFINITION = [
    (f"{' '.join(words)} {parameter.name}", parameter)
    for words, command in commands(program())
    for parameter in command.params
    if "module:" in (getattr(parameter, "help", "") or "").lower() and parameter.name not in OF_ANY_KIND
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("projects")
    with contextlib.chdir(folder):
        assert factfold("new", "teahouse").exit_code == 0
    return folder / "teahouse"


@pytest.fixture
def folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's folder, which is the current one."""
    monkeypatch.chdir(project)
    return project


@each_row(("place", "parameter"), NAMING_A_DEFINITION)
def test_an_argument_that_names_a_definition_is_completed(place: str, parameter: click.Parameter, folder: Path) -> None:
    offered = parameter.shell_complete(click.Context(click.Command("any")), "teahouse")
    assert offered
    assert all(one.value.startswith("teahouse") for one in offered)


def test_only_definitions_of_the_kind_that_begin_with_the_word_are_offered(folder: Path) -> None:
    assert completes("projections")("") == ["teahouse.views:group"]
    assert completes("projections")("teahouse.views:g") == ["teahouse.views:group"]
    assert completes("projections")("other") == []
    assert completes("subscription", "queue")("") == ["teahouse.reviews:review"]
    assert complete_package("tea") == ["teahouse"]


def test_a_folder_without_a_package_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert completes("aggregate")("") == complete_package("") == []


def test_a_shell_gets_words_alone_also_of_modules_that_print_or_fail(folder: Path) -> None:
    (folder / "teahouse" / "noisy.py").write_text(NOISY, encoding="utf-8")
    (folder / "teahouse" / "broken.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    asked = {
        "_FACTFOLD_COMPLETE": "complete_bash",
        "COMP_WORDS": "factfold schema check teahouse.noisy:",
        "COMP_CWORD": "3",
    }
    done = factfold(env=asked)
    assert (done.exit_code, done.stdout.split(), done.stderr) == (0, ["teahouse.noisy:Order"], "")


# ---- commands that look into a store make none


LOOKS = [
    ("events", "tail"),
    ("events", "show", "order-o1@0"),
    ("streams", "show", "order-o1"),
    ("trace", "11111111-1111-1111-1111-111111111111"),
    ("processes", "list"),
    ("processes", "stats"),
    ("schedule", "list"),
    ("store", "archive", "order-o1"),
    ("erase", "ann", "--yes"),
]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_file_that_is_not_there_is_not_made(words, tmp_path):
    path = tmp_path / "nope.db"
    done = factfold(*words, "--store-url", f"sqlite:///{path}")
    assert isinstance(done.exception, StoreNotPrepared), done.output
    assert "there is no such file" in done.exception.message
    assert not path.exists()
