"""`factfold up`: all parts of a service together, while it is developed."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventstore.errors import DeclarationError
from factfold.cli.definitions import complete_package
from factfold.cli.options import argument, option
from factfold.cli.running import RestartLimit, stop_on_signal
from factfold.development.parts import LeftOut, Part, parts_of
from factfold.development.preparing import Prepare, prepare_new_store
from factfold.development.screen import Lines, screen
from factfold.development.supervising import Supervisor
from factfold.discovery import discovered, service_packages

if TYPE_CHECKING:
    from factfold.discovery import Discovery


def up(
    package: Annotated[
        str | None,
        argument("The service's package. Default: the one of this folder.", "PACKAGE", autocompletion=complete_package),
    ] = None,
    logs: Annotated[Path, option("--logs", "Folder of the parts' logs.")] = Path(".factfold/logs"),
    prepare: Prepare = None,
    restarts: RestartLimit = 8,
    as_json: Annotated[bool, option("--json", "Print JSON, one object a line.")] = False,
) -> None:
    """Run all parts of a service together, until a signal comes.

    Parts are projections, branches, subscriptions and processes.
    A new event store in SQLite is prepared first. Each part is a process with a log of its own and starts again after a
    failure. Exit code 1 if one was given up.
    """
    stop = stop_on_signal()
    service = _service(package)
    planned = parts_of(service, os.environ)
    parts = [one for one in planned if isinstance(one, Part)]
    left_out = [one for one in planned if isinstance(one, LeftOut)]
    has_screen = sys.stdout.isatty() and not as_json
    lines = Lines(as_json=as_json, has_screen=has_screen)
    if prepared := prepare_new_store(service.package, os.environ, prepare):
        lines.prepared(prepared)
    supervisor = Supervisor(parts, logs, limit=restarts, on_state=lines.on_state, on_line=lines.on_line)
    with ExitStack() as opened:
        if has_screen:
            opened.enter_context(screen(lambda: supervisor.running, left_out))
        for one in () if has_screen else left_out:
            lines.left_out(one)
        supervisor.run(stop=stop)
    if supervisor.failed or any(one.kind == "module" for one in left_out):
        raise typer.Exit(1)


def _service(package: str | None) -> Discovery:
    """The definitions of a package; DeclarationError if there are none to run."""
    names = [package] if package else service_packages(Path())
    packages = [
        one for one in map(discovered, names) if one.failures or len(one.definitions) > len(one.of("aggregate"))
    ]
    if len(packages) == 1:
        return packages[0]
    several = ", ".join(one.package for one in packages)
    raise DeclarationError(
        f"several packages have definitions: {several}" if packages else _nothing(names),
        remedy=f"name one of them: factfold up {packages[0].package}" if packages else "name the service's package",
    )


def _nothing(names: list[str]) -> str:
    looked = f"package {names[0]}" if len(names) == 1 else f"{len(names)} packages of this folder"
    return f"there is no projection group, branches, subscription or process in {looked}"
