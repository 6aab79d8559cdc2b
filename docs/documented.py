"""The names that the reference documents, and the modules that define them: for docs.language."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

_ENTRY = re.compile(r"^::: (\S+)(?:\n    options:\n      members: \[(.*)\])?$", re.MULTILINE)


def entries(root: Path) -> list[str]:
    """Return the entries of the reference, in the order of its pages. A module's entry is its documented names."""
    pages = sorted((root / "docs/reference").glob("*.md"))
    found = (match.groups() for page in pages for match in _ENTRY.finditer(page.read_text("utf-8")))
    return [name for home, members in found for name in _names(root, home, members)]


def _names(root: Path, home: str, members: str | None) -> list[str]:
    if members is None or _home(root, home)[1] != "*":  # members of a class are no entries
        return [home]
    return [f"{home}.{name}" for name in members.split(", ")]


def documented(root: Path) -> Mapping[Path, frozenset[str]]:
    """Return the documented names of each module; `*` stands for all public ones."""
    members = defaultdict(set)
    for name in entries(root):
        module, member = _home(root, name)
        members[module].add(member)
    return {module: frozenset(names) for module, names in members.items()}


def _home(root: Path, name: str) -> tuple[Path, str]:
    path = root.joinpath(*name.split("."))
    if path.with_suffix(".py").exists():
        return path.with_suffix(".py"), "*"
    stub = path.parent / "__init__.pyi"
    if stub.exists():
        for node in ast.parse(stub.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and any(alias.name == path.name for alias in node.names):
                return _module(root, node.module or ""), path.name
    return _module(root, name.rpartition(".")[0]), path.name


def _module(root: Path, name: str) -> Path:
    path = root.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
