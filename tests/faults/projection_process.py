"""`factfold projections run` as a process group of its own, killed whole: Python, the driver's JVM, the workers."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


class ProjectionProcess:
    """One runner process; ``settings`` are the FACTFOLD_ variables that tell it where things are.

    ``module`` is another program that takes the same arguments: a mutant.
    """

    def __init__(self, settings: Mapping[str, str], group: str, log: Path, *, module: str = "factfold") -> None:
        arguments = [sys.executable, "-m", module, "projections", "run", group, "--json"]
        self._log = log
        chosen = os.environ | settings
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                arguments,
                env=chosen,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._lines: queue.Queue[dict[str, object]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                self._lines.put(json.loads(line))

    def wait_for(self, count: int, *, deadline: float = 120.0) -> None:
        """Wait until the process has told of so many more steps: that it follows, or a batch it applied."""
        until = time.monotonic() + deadline
        for _ in range(count):
            while True:
                try:
                    self._lines.get(timeout=0.2)
                    break
                except queue.Empty:
                    if self._process.poll() is not None or time.monotonic() > until:
                        said = self._log.read_text()[-3000:]
                        raise AssertionError(f"the runner said nothing more:\n{said}") from None

    def kill(self) -> None:
        """End the whole process group by SIGKILL."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._finish()

    def stop(self) -> int:
        """Ask it to stop after the batch at hand; returns its exit code."""
        self._process.terminate()
        self._process.wait(60)
        self._finish()
        return self._process.returncode

    def _finish(self) -> None:
        self._process.wait(60)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
