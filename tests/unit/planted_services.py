"""Services in a text, each imported under a name of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def importing(folder: Path) -> Iterator[Callable[..., str]]:
    """A function that makes a package in a folder, whose module `service` is a text, and returns its name."""
    sys.path.insert(0, str(folder))
    made: list[str] = []

    def made_of(text: str, name: str = "planted") -> str:
        package = folder / f"{name}_{len(made)}"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "service.py").write_text(text)
        made.append(package.name)
        importlib.invalidate_caches()
        return package.name

    try:
        yield made_of
    finally:
        sys.path.remove(str(folder))
