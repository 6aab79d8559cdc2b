"""`factfold new`: a running project in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from factfold.cli.options import argument
from factfold.cli.show import Out
from factfold.scaffolding import create_project


def new(
    name: Annotated[str, argument("Name of the project and its package, such as shop.")],
    out: Out,
) -> None:
    """Create a project that runs without servers: code, tests, Makefile, settings.

    It is in the new folder NAME. `factfold stack export` and `factfold watch export` add images and monitoring.
    """
    here = Path.cwd()
    written = [str(file.relative_to(here)) for file in create_project(name, parent=here)]
    said = f"{len(written)} files in {name}. Next: cd {name} && make test && make demo"
    out.show({"project": name, "files": written}, said)
