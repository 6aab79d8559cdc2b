"""The loop of `factfold dev`: one JVM, one process for each state of the code, another one when a file changes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from factfold.development.supervising import end
from factfold.development.turn import SIGNATURES, say
from factfold.development.watching import Watch

if TYPE_CHECKING:
    from projections.spark.shared_jvm import SharedJvm

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
