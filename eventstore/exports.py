"""Public names of a package, listed once in its `__init__.pyi` and loaded when they are first used.

Type checkers and editors read the stub, and a typing error shows in them. At run time the same file says where each
name is, so that importing a package loads no third-party client.
The idea is SPEC 1 of Scientific Python (https://scientific-python.org/specs/spec-0001/).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventstore.extras import import_with_extras


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
