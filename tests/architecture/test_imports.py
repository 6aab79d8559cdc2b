"""Who may import whom, and what importing costs."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("eventstore", "cdc", "projections", "factfold")
CLIENTS = ("pyspark", "confluent_kafka", "sqlalchemy", "requests", "fastavro")


def as_ruff_sorts(name):
    """Constants, then classes, then the rest (ruff's RUF022)."""
    return (not name.isupper(), not name[0].isupper(), name)


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


def test_every_import_contract_of_pyproject_is_kept(tmp_path):
    lint = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = run("-c", lint, "--no-logo", "--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def circle_of(*packages):
    """Modules that import each other in a circle, or none. Late imports and those for type checkers count."""
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=False, cache_dir=None)
    try:
        TopologicalSorter({m: graph.find_modules_directly_imported_by(m) for m in graph.modules}).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    assert circle_of(*PACKAGES, "sample_app") == []


IMPORTS_BACK = {
    "late": "def use():\n    from planted.upper import Upper\n",
    "for type checkers": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from planted.upper import Upper\n",
}


@pytest.mark.parametrize("kind", IMPORTS_BACK)
def test_a_circle_through_an_import_of_any_kind_is_reported(kind, tmp_path, monkeypatch):
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "upper.py").write_text("from planted.lower import use\n")
    (package / "lower.py").write_text(IMPORTS_BACK[kind])
    monkeypatch.syspath_prepend(tmp_path)
    assert set(circle_of("planted")) == {"planted.upper", "planted.lower"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_public_names_of_a_package_are_sorted_and_there(package):
    module = importlib.import_module(package)
    names = list(getattr(module, "__all__", ()))
    assert names == sorted(set(names), key=as_ruff_sorts)
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_root_loads_no_client_library(package):
    loaded = f"import sys, {package}; print(sorted(set({CLIENTS!r}) & set(sys.modules)))"
    done = run("-c", loaded)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


STUBS = sorted(
    str(path.parent.relative_to(ROOT)).replace(os.sep, ".")
    for top in PACKAGES
    for path in (ROOT / top).rglob("__init__.pyi")
)


@pytest.mark.parametrize("package", STUBS)
def test_looking_at_a_package_names_what_its_stub_exports(package):
    module = importlib.import_module(package)
    assert module.__all__ == sorted(dir(module), key=as_ruff_sorts)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_the_kind'"):
        _ = module.nothing_of_the_kind


def test_a_type_checker_finds_a_public_name_that_does_not_exist(tmp_path):
    written = tmp_path / "service.py"
    written.write_text("from eventstore import Aggregate, Agregate\n")
    done = run("-m", "mypy", "--cache-dir", str(tmp_path), "--config-file", "", str(written))
    assert "Found 1 error" in done.stdout, done.stdout
    assert 'has no attribute "Agregate"' in done.stdout
