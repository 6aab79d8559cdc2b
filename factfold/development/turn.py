"""One turn of `factfold dev`: a process of its own that builds a group, compares it, and follows until it is ended.

Every change of the code starts another one, because a module that is loaded again in the same process keeps classes and
functions of before. Spark goes on in the JVM of the command (`projections.spark.session`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import projections
from factfold import on_demand
from factfold.cli.keys import StoredKeys
from factfold.cli.running import log_to_stderr, stop_on_signal
from factfold.cli.show import echo, ended
from factfold.cli.views.projections import (
    Place,
    load_group,
    opened_environment,
    rebuild_progress,
    row_lines,
    without_personal,
)
from projections.errors import DefinitionChanged

if TYPE_CHECKING:
    from projections import BatchReport, Environment, ProjectionGroup
    from projections.stores.sql import TableStore

SIGNATURES: Final = "FACTFOLD_DEV_SIGNATURES"
"""The variable that names the file in which one turn leaves the views' signatures for the next."""


@dataclasses.dataclass(frozen=True)
class Turn:
    """A group under a version of its own in the development's database; ``serves`` if its views are built."""

    group: ProjectionGroup
    serves: bool

    @staticmethod
    def of(store: TableStore, group: ProjectionGroup) -> Turn:
        """The group as the serving generation has it, or under a version that no generation has."""
        states = store.states(group.name)
        serving = next((state for state in states if state.status == "serving"), None)
        if serving is None:
            return Turn(group, serves=False)
        same = dataclasses.replace(group, version=serving.run.version or group.version)
        if same.fingerprint() == serving.run.fingerprint:
            return Turn(same, serves=True)
        versions = [state.run.version or 0 for state in states]
        return Turn(dataclasses.replace(group, version=max(*versions, group.version - 1) + 1), serves=False)

    def next(self) -> Turn:
        """The same definition under another version, for code that a fingerprint does not see."""
        return Turn(dataclasses.replace(self.group, version=self.group.version + 1), serves=False)


def changed_views(group: ProjectionGroup, file: Path) -> list[str]:
    """Return the views whose definition is not that of the turn before, and leave theirs for the next."""
    now = group.signatures()
    before: Mapping[str, str] | None = json.loads(file.read_text()) if file.exists() else None
    file.write_text(json.dumps(now))
    if before is None:
        return []
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def take_turn(environment: Environment, group: ProjectionGroup, *, stop: Event) -> None:
    """Build what is not built, compare, and apply batches until ``stop`` is set."""
    turn = Turn.of(environment.store, group)
    try:
        equal = turn.serves and _verify(environment, turn.group)
    except DefinitionChanged:  # the columns of a view tell what its fingerprint does not
        equal = False
    if not equal:
        turn = turn.next() if turn.serves else turn
        _rebuild(environment, turn.group)
        _verify(environment, turn.group)
    if not stop.is_set():
        say("following; save a file to build again, Ctrl-C to end")
        projections.Follower(environment=environment, group=turn.group, on_batch=_tell_batch).run(stop=stop)


def _rebuild(environment: Environment, group: ProjectionGroup) -> None:
    if environment.store.states(group.name):
        on_demand.drop(environment.store, group.name)  # the retired generations of earlier turns
    begun = time.monotonic()
    with rebuild_progress(group.name) as on_progress:
        report = projections.rebuild(environment, group, cut_over=True, on_progress=on_progress)
    rows = ", ".join(f"{view.name} {report.rows[view.name]:,} rows" for view in group.views)
    say(f"built in {time.monotonic() - begun:.1f} s: {rows}")


def _verify(environment: Environment, group: ProjectionGroup) -> bool:
    begun = time.monotonic()
    verdicts = without_personal(projections.verify(environment, group), environment, group)
    differing = [name for name, verdict in verdicts.items() if not verdict.equal]
    outcome = f"views differ from their recomputation: {', '.join(differing)}" if differing else "live = recomputed"
    say(f"verified in {time.monotonic() - begun:.1f} s: {outcome}")
    for name in differing:
        for row in verdicts[name].differing:
            for line in row_lines(row, "live", "recomputed"):
                echo(line)
    return not differing


def _tell_batch(report: BatchReport) -> None:
    said = f"{report.records:,} records: {report.upserts:,} rows written, {report.retractions:,} retracted"
    say(f"{said}, {report.total_seconds:.2f} s")


def say(line: str) -> None:
    """Print a line with the time of day."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Take a turn with the group that ``arguments`` name, and return the exit code."""
    spec, memory = arguments
    log_to_stderr()
    _quiet()
    try:
        return ended(lambda: _turn(spec, memory, stop_on_signal()))
    except Exception as error:
        echo(own_lines(error, Path.cwd()), nl=False, err=True)
        return 1


def _turn(spec: str, memory: str, stop: Event) -> None:
    group = load_group(spec)
    if changed := changed_views(group, Path(os.environ[SIGNATURES])):
        say(f"changed: {', '.join(changed)}; raise the group's version before you release it")
    keys = StoredKeys(os.environ.get("FACTFOLD_MASTER_KEYS"), os.environ.get("FACTFOLD_KEYS_URL"))
    with opened_environment(group, Place(os.environ["FACTFOLD_VIEWS_URL"], memory, keys)) as opened:
        stop_on_signal(stop)
        take_turn(opened, group, stop=stop)


def own_lines(error: Exception, folder: Path) -> str:
    """The traceback of an error with the lines of the project alone."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(folder)
    ]
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)])


def _quiet() -> None:
    """Leave out what the libraries log of a run that goes as it should."""
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
