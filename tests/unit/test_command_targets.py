"""What a command says of a definition that is not there: what the module has, and what to write."""

from __future__ import annotations

import sys

import pytest

from cdc.errors import InvalidConnector
from eventstore.errors import DeclarationError
from eventstore.extras import MissingExtra
from factfold.cli.cdc.connectors import declared
from factfold.cli.definitions import ModuleBroken, load_aggregate
from factfold.cli.events.subscriptions import load_subscription
from factfold.cli.service.processes import load_process
from factfold.cli.views.projections import load_group
from tests.commands import factfold
from tests.rows import each_row

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
