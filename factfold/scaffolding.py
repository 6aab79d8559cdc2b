"""A new project from the templates of the package: `factfold new shop`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

from eventstore.errors import FactfoldError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TEMPLATE: Final = ".tmpl"
_PLACE: Final = "NAME"  # the folder of the templates that becomes the project's package
_FOLDERS: Final = frozenset({"docker", "tests", "watching"})  # what a project has next to its package


class ProjectRefused(FactfoldError):
    """A project cannot be created under this name in this folder."""


def create_project(name: str, *, parent: Path) -> list[Path]:
    """Write a new project into the folder ``parent / name`` and return its files.

    Raises ProjectRefused if the name is not a free name of a Python package or if the folder exists.
    """
    _check_name(name)
    folder = parent / name
    try:
        folder.mkdir()
    except FileExistsError:
        raise ProjectRefused(
            f"{name!r} exists in this folder", remedy="choose another name, or run the command in another folder"
        ) from None
    except OSError as error:
        raise ProjectRefused(
            f"the folder {name!r} cannot be created: {error.strerror}", remedy="run the command in a folder of your own"
        ) from error
    return sorted(_write(folder / path, text) for path, text in _project(name))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ProjectRefused(
            f"{name!r} is not a name of a Python package",
            remedy="use 1 to 40 of a-z, 0-9 and _, beginning with a letter: factfold new shop",
        )
    if name in _FOLDERS:
        raise ProjectRefused(f"a project has a folder {name!r} of its own", remedy="choose another name")
    if not Path(name).exists() and find_spec(name) is not None:
        raise ProjectRefused(f"Python has a module {name!r} already", remedy="choose another name")


def _project(name: str) -> Iterator[tuple[str, str]]:
    """Path and text of every file: the filled-in templates, the servers' images, and the files to watch with."""
    package = files("factfold")
    for path, text in _texts(package / "templates" / "project"):
        path = path.removesuffix(_TEMPLATE)
        yield re.sub(rf"^{_PLACE}/", f"{name}/", path), Template(text).substitute(name=name)
    for path, text in _texts(_images()):
        yield f"docker/{path}", text
    for path, text in _texts(package / "watching" / "files"):
        yield f"watching/{path}", text


def _images() -> Traversable:
    """The folder of the servers' images: in the wheel inside the package, in the repository next to it."""
    inside = files("factfold") / "docker"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "docker"


def _texts(folder: Traversable, below: str = "") -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _texts(entry, f"{below}{entry.name}/")
        else:
            yield below + entry.name, entry.read_text("utf-8")


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file
