"""`factfold dev`: one group, built, compared and followed again after each change of its code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from factfold import on_demand
from factfold.cli.definitions import ModuleBroken
from factfold.cli.keys import StoredKeys
from factfold.cli.options import Memory, Views, option
from factfold.cli.running import stop_on_signal
from factfold.cli.views.projections import Group, load_group
from factfold.development.dev_loop import DevLoop
from factfold.development.preparing import Prepare, prepare_new_store
from factfold.development.turn import say
from factfold.stack import delta_jars, spark_jars
from factfold.stack.java import require_java


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
