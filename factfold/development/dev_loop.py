"""The loop of `factfold dev`: one JVM, one process for each state of the code, another one when a file changes.

Which files of a project have changed, by looking at their times: no service of the operating system is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from factfold.development.supervising import end
from factfold.development.turn import SIGNATURES, say

if TYPE_CHECKING:
    from projections.spark.session import SharedJvm

LOOK_SECONDS: Final = 0.5
_SUFFIXES: Final = (".py", ".sql", ".toml")
_MOST_FILES: Final = 20_000


class Watch:
    """Watches the source files under a folder, without hidden folders and virtual environments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def changes(self) -> list[Path]:
        """Return the files that were changed, made or deleted since the last call, relative to the folder."""
        before, self._seen = self._seen, self._look()
        paths = before.keys() | self._seen.keys()
        changed = (path for path in paths if before.get(path) != self._seen.get(path))
        return sorted(path.relative_to(self._folder) for path in changed)

    def wait(self, stop: Event) -> list[Path]:
        """Wait for changes and return them, together with those that follow at once; nothing once ``stop`` is set."""
        while not stop.wait(LOOK_SECONDS):
            if changed := self.changes():
                while not stop.wait(LOOK_SECONDS) and (more := self.changes()):
                    changed = sorted({*changed, *more})
                return changed
        return []

    def _look(self) -> Mapping[Path, tuple[int, int]]:
        stamps: dict[Path, tuple[int, int]] = {}
        for path in self._files():
            try:
                status = path.stat()
            except OSError:
                continue  # deleted between the two looks
            stamps[path] = (status.st_mtime_ns, status.st_size)
            if len(stamps) >= _MOST_FILES:
                break
        return stamps

    def _files(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self._folder):
            here = Path(folder)
            folders[:] = sorted(name for name in folders if _is_source(here / name))
            yield from (here / name for name in sorted(names) if name.endswith(_SUFFIXES))


def _is_source(folder: Path) -> bool:
    hidden = folder.name.startswith((".", "__pycache__", "node_modules"))
    return not hidden and not (folder / "pyvenv.cfg").exists()


_END_SECONDS: Final = 15.0
_SHOWN_FILES: Final = 5


@dataclass(frozen=True)
class DevLoop:
    """Takes turns with a group; ``variables`` are settings that options gave."""

    target: str
    jvm: SharedJvm
    folder: Path
    memory: str
    variables: Mapping[str, str]

    def run(self, *, stop: Event) -> None:
        """Take a turn, and another one after each change of the project's files, until ``stop`` is set."""
        watch = Watch(self.folder)
        with tempfile.TemporaryDirectory(prefix="factfold-dev-") as folder:
            while not stop.is_set():
                process = self._start(Path(folder) / "signatures.json")
                try:
                    files = watch.wait(stop)
                finally:
                    self._end(process)
                if files:
                    say(f"changed: {_named(files)}")

    def _start(self, signatures: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.variables, **self.jvm.variables, SIGNATURES: str(signatures)}
        arguments = [sys.executable, "-m", "factfold.development.turn", self.target, self.memory]
        return subprocess.Popen(arguments, env=environment, cwd=self.folder)  # noqa: S603 - ourselves

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        end(process, within=_END_SECONDS)
        if process.returncode != 0:
            self.jvm.release()


def _named(files: list[Path]) -> str:
    shown = ", ".join(str(path) for path in files[:_SHOWN_FILES])
    return shown if len(files) <= _SHOWN_FILES else f"{shown} and {len(files) - _SHOWN_FILES} more"
