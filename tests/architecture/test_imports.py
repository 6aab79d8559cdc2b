"""Who may import whom, and what importing costs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("eventstore", "cdc", "projections", "factfold")
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
CLIENTS = {"pyspark", "confluent_kafka", "sqlalchemy", "requests", "fastavro", "pydantic", "stamina"}
# One process runs these statements in this order, and none of the modules may be there afterwards.
LOADS_NONE_OF = {
    f"import {', '.join(PACKAGES)}": CLIENTS,
    "from eventstore import Aggregate, command, event, Digits, NO_STREAM": CLIENTS,
    "import cdc.source.grants, cdc.changes.change_event, cdc.operating.control": {"sqlalchemy"},
    "from factfold.cli.entry import application; application()": {
        "pyspark", "confluent_kafka", "sqlalchemy", "requests", "psutil", "factfold.stack.local",
    },
}  # fmt: skip


def as_ruff_sorts(name):
    """Constants, then classes, then the rest (ruff's RUF022)."""
    return (not name.isupper(), not name[0].isupper(), name)


def circle_of(*packages):
    """Modules that import each other in a circle, or none. Late imports, those for type checkers and stubs count."""
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=False, cache_dir=None)
    exported = {package: stub_names(graph, package) for package in graph.modules}
    imports = {
        m: {*graph.find_modules_directly_imported_by(m), *through_stubs(m, exported)} - {m} for m in graph.modules
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def source_of(module):
    return Path(importlib.util.find_spec(module).origin)


def imports_of(file):
    """The module and the name of each `from … import …` of a file."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    return [(node.module, alias.name) for node in nodes for alias in node.names]


def stub_names(graph, package):
    """The module that each name of a package comes from, by its stub."""
    stub = source_of(package).with_suffix(".pyi")
    found = {name: module for module, name in imports_of(stub)} if stub.exists() else {}
    assert set(found.values()) <= graph.modules
    return found


def through_stubs(module, exported):
    """The modules of the names that a module imports from packages which load them by their stubs."""
    named = imports_of(source_of(module))
    return {exported[package][name] for package, name in named if name in exported.get(package, ())}


def test_no_modules_import_each_other_in_a_circle():
    assert circle_of(*PACKAGES, "sample_app") == []


IMPORTS_BACK = {
    "late": "def use():\n    from planted.upper import Upper\n",
    "for type checkers": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from planted.upper import Upper\n",
    "through a stub": "def use():\n    from planted import Upper\n",
}


@pytest.mark.parametrize("kind", IMPORTS_BACK)
def test_a_circle_through_an_import_of_any_kind_is_reported(kind, tmp_path, monkeypatch):
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__init__.pyi").write_text("from planted.upper import Upper as Upper\n")
    (package / "upper.py").write_text("from planted.lower import use\n")
    (package / "lower.py").write_text(IMPORTS_BACK[kind])
    monkeypatch.syspath_prepend(tmp_path)
    assert set(circle_of("planted")) == {"planted.upper", "planted.lower"}


def late_imports(file):
    """The lines of a file's imports of own modules inside functions."""
    functions = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, FUNCTION)]
    imports = [node for one in functions for node in ast.walk(one) if isinstance(node, ast.Import | ast.ImportFrom)]
    own = [node for node in imports if (getattr(node, "module", None) or node.names[0].name).split(".")[0] in PACKAGES]
    return {node.lineno: node.end_lineno for node in own}


def has_reason(lines, first, last):
    """Whether a comment is on an import, or on the imports and comments above it."""
    above = takewhile(lambda line: line.strip().startswith(("from ", "import ", "#")), reversed(lines[: first - 1]))
    return any("#" in line for line in [*above, *lines[first - 1 : last]])


def test_fewer_than_eighty_own_modules_are_imported_late_and_each_with_its_reason():
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    late = {(file, first): last for file in files for first, last in late_imports(file).items()}
    assert len(late) < 80
    texts = {file: file.read_text("utf-8").splitlines() for file, _ in late}
    assert [f"{file}:{first}" for (file, first), last in late.items() if not has_reason(texts[file], first, last)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_public_names_of_a_package_are_sorted_and_there(package):
    module = importlib.import_module(package)
    names = list(getattr(module, "__all__", ()))
    assert names == sorted(set(names), key=as_ruff_sorts)
    assert [name for name in names if not hasattr(module, name)] == []


def test_what_needs_no_client_library_loads_none():
    program = f"import sys\nfor code in {list(LOADS_NONE_OF)}:\n    exec(code)\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded = zip(LOADS_NONE_OF.items(), done.stdout.splitlines(), strict=True)
    assert {code: found for (code, heavy), line in loaded if (found := heavy & set(line.split()))} == {}


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
