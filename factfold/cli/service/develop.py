"""`factfold dev`: one group, built, compared and followed again after each change of its code.

`factfold up`: all parts of a service together, while it is developed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.definitions import ModuleBroken, complete_package
from factfold.cli.keys import StoredKeys
from factfold.cli.options import Memory, Views, argument, option
from factfold.cli.running import RestartLimit, stop_on_signal
from factfold.cli.views.projections import Group, load_group
from factfold.development.dev_loop import DevLoop
from factfold.development.parts import LeftOut, Part, Prepare, parts_of, prepare_new_store
from factfold.development.supervising import Lines, Supervisor, screen
from factfold.development.turn import say
from factfold.discovery import discovered, service_packages
from factfold.stack import delta_jars, spark_jars
from factfold.stack.java import require_java

if TYPE_CHECKING:
    from factfold.discovery import Discovery


def dev(
    group: Group,
    views_url: Views,
    stored: StoredKeys,
    memory: Memory = "1g",
    prepare: Prepare = None,
    folder: Annotated[Path, option("--folder", "The project's folder, whose files are watched.")] = Path(),
) -> None:
    """Build a group, verify and follow it, again after each change of a file.

    A new event store in SQLite is prepared first. Spark starts once. A changed definition becomes a new generation
    under a version of its own, without a question: use a database for development. An error is shown, and the next
    change is tried.
    """
    lakes = _lakes(group)
    require_java()
    stop = stop_on_signal()
    package = group.partition(":")[0].partition(".")[0]
    if prepared := prepare_new_store(package, {**os.environ, "FACTFOLD_VIEWS_URL": views_url}, prepare):
        say(f"prepared a new event store: {prepared}")
    jars = [*spark_jars(), *delta_jars()] if lakes else spark_jars()
    given = {
        "FACTFOLD_VIEWS_URL": views_url,
        "FACTFOLD_MASTER_KEYS": stored.master_keys,
        "FACTFOLD_KEYS_URL": stored.keys_url,
    }
    variables = {name: value for name, value in given.items() if value is not None}
    say("starting Spark, once")
    with on_demand.SharedJvm(jars, memory=memory) as jvm:
        stop_on_signal(stop)
        DevLoop(group, jvm, folder.absolute(), memory, variables).run(stop=stop)


def _lakes(group: str) -> Sequence[str]:
    """The Delta tables of a group. Refuses a wrong target before Spark starts; broken code may be mended after it."""
    with suppress(ModuleBroken):
        return on_demand.lakes_of(load_group(group).all_views)
    return ()


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
    if prepared := prepare_new_store(service.targets[0], os.environ, prepare):
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
    several = ", ".join(one.targets[0] for one in packages)
    raise DeclarationError(
        f"several packages have definitions: {several}" if packages else _nothing(names),
        remedy=f"name one of them: factfold up {packages[0].targets[0]}" if packages else "name the service's package",
    )


def _nothing(names: list[str]) -> str:
    looked = f"package {names[0]}" if len(names) == 1 else f"{len(names)} packages of this folder"
    return f"there is no projection group, branches, subscription or process in {looked}"
