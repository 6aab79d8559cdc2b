"""A `factfold` command as a process group of its own, killed whole with whatever it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


class CommandProcess:
    """One command that runs on; ``settings`` are FACTFOLD_ variables, ``log`` takes its messages.

    What it prints goes into a file of the log's name with the ending `.out`. ``module`` is another program that takes
    the same arguments: a mutant.
    """

    def __init__(
        self, arguments: Sequence[str], settings: Mapping[str, str], log: Path, *, module: str = "factfold"
    ) -> None:
        self._arguments, self._settings, self._module = arguments, settings, module
        self._log, self._out = log, log.with_suffix(".out")
        self.kills = 0
        self._start()
        self._waited_for = len(self.told())

    def _start(self) -> None:
        with self._log.open("ab") as errors, self._out.open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, *self._arguments],
                env=os.environ | self._settings,
                cwd=ROOT,
                stdout=said,
                stderr=errors,
                start_new_session=True,
            )

    def require_alive(self) -> None:
        """Fail with the end of its log where it has ended by itself."""
        assert self._process.poll() is None, self.said[-3000:]

    @property
    def said(self) -> str:
        """Everything it has said, and those before it."""
        return "".join(file.read_text(errors="replace") for file in (self._out, self._log))

    def told(self) -> list[dict[str, Any]]:
        """The whole lines of JSON that it has printed, and those before it."""
        whole, _, _ = self._out.read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]

    def wait_for_lines(self, count: int) -> None:
        """Wait until it has printed so many more lines of JSON."""
        self._waited_for += count
        wait_until(lambda: len(self.told()) >= self._waited_for, alive=self.require_alive, what=lambda: self.said)

    def kill(self) -> None:
        """End the process group by SIGKILL."""
        self.require_alive()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self.kills += 1

    def kill_and_restart(self) -> None:
        """End the process group by SIGKILL and start the command again."""
        self.kill()
        self._start()

    def wait(self, seconds: float = 60) -> int:
        """Wait until it ends by itself, and return its exit code."""
        return self._process.wait(seconds)

    def restart(self) -> None:
        """Start the command again after its end."""
        self._start()

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait(60)
