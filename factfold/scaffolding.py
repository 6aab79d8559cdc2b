"""Files of the package for a project: `factfold new shop`, and the folders that `export` commands write."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

from eventstore.errors import InvalidArgument

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TEMPLATE: Final = ".tmpl"
_PLACE: Final = "NAME"  # the folder of the templates that becomes the project's package
_FOLDERS: Final = frozenset({"docker", "tests"})  # what a project has next to its package


def create_project(name: str, *, parent: Path) -> list[Path]:
    """Write a new project into the folder ``parent / name`` and return its files.

    Raises InvalidArgument if the name is not a free name of a Python package or if the folder exists.
    """
    _check_name(name)
    folder = parent / name
    try:
        folder.mkdir()
    except FileExistsError:
        raise InvalidArgument(
            f"{name!r} exists in this folder", remedy="choose another name, or run the command in another folder"
        ) from None
    except OSError as error:
        raise InvalidArgument(
            f"the folder {name!r} cannot be created: {error.strerror}", remedy="run the command in a folder of your own"
        ) from error
    return _write(folder, _templates("project", name))


def write_docker(folder: Path, *, service: str | None) -> list[Path]:
    """Write the servers' images into ``folder / "docker"`` and return all files, replaced ones too.

    Args:
        folder: The folder, made if it is missing.
        service: The package of a project of `factfold new`, for its own compose file and image.

    Raises InvalidArgument if the service is no name of a Python package.
    """
    if service is not None:
        _check_syntax(service)
    images = files("factfold") / "docker"  # in the wheel; the repository has it next to the package
    images = images if images.is_dir() else Path(__file__).parents[1] / "docker"
    written = _write(folder / "docker", _texts(images))
    if service is not None:
        written += _write(folder, _templates("docker", service))
    return written


def write_monitoring(folder: Path) -> list[Path]:
    """Write the alert rules and the dashboard into a folder, made if it is missing, and return the files."""
    return _write(folder, _texts(files("factfold") / "watching" / "files"))


def _check_name(name: str) -> None:
    _check_syntax(name)
    if name in _FOLDERS:
        raise InvalidArgument(f"a project has a folder {name!r} of its own", remedy="choose another name")
    if not Path(name).exists() and find_spec(name) is not None:
        raise InvalidArgument(f"Python has a module {name!r} already", remedy="choose another name")


def _check_syntax(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InvalidArgument(
            f"{name!r} is not a name of a Python package",
            remedy="use 1 to 40 of a-z, 0-9 and _, beginning with a letter: factfold new shop",
        )


def _templates(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """Path and text of every filled-in template."""
    names = {"name": name, "source": _source()}
    for path, text in _texts(files("factfold") / "templates" / kind):
        path = path.removesuffix(_TEMPLATE)
        yield re.sub(rf"^{_PLACE}/", f"{name}/", path), Template(text).substitute(names)


def _source() -> str:
    """What `pip install` takes for this Factfold: the address it came from, and its name if that was an index."""
    try:
        origin = json.loads(distribution("factfold").read_text("direct_url.json") or "{}")  # PEP 610
    except PackageNotFoundError:  # it runs from a folder
        origin = {}
    if not origin:
        return "factfold[all]"
    if commit := origin.get("vcs_info"):
        origin["url"] = f"{commit['vcs']}+{origin['url']}@{commit['commit_id']}"
    return f"factfold[all] @ {origin['url']}"


def _texts(folder: Traversable, below: str = "") -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _texts(entry, f"{below}{entry.name}/")
        else:
            yield below + entry.name, entry.read_text("utf-8")


def _write(folder: Path, texts: Iterator[tuple[str, str]]) -> list[Path]:
    """Write every file at its path below the folder, and return the files in order."""
    written = []
    for path, text in texts:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        written.append(file)
    return sorted(written)
