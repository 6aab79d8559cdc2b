"""`factfold branches run` as a process group of its own: stopped by a signal, or killed whole with its JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
DEFINITION = "tests.integration.payment_branches:payments"


class RouterProcess:
    """One router; what it says on stdout is JSON, its log grows from process to process."""

    def __init__(self, bootstrap_servers: str, topic: str, folder: Path, *options: str) -> None:
        self.checkpoints, self._log = folder / "checkpoints", folder / "router.log"
        arguments = ["branches", "run", DEFINITION, "--checkpoints", str(self.checkpoints), "--json", *options]
        environment = os.environ | {
            "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "FACTFOLD_TEST_TOPIC": topic,
            # Half of what a starting router computes is the second compiler's and the parallel collector's.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "factfold", *arguments], env=environment, cwd=ROOT,
                stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> str:
        """Everything the routers of this folder have said."""
        return self._log.read_text(encoding="utf-8")

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the whole process group by SIGKILL."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=30)

    def stop(self) -> dict[str, Any]:
        """Ask it to stop, and return what it says at the end."""
        self._process.terminate()
        said, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, f"exit code {self._process.returncode}: {self.log[-3000:]}"
        return json.loads(said.splitlines()[-1])

    def wait_for_end(self, *, within: float) -> int:
        """Wait until it ends by itself, and return its exit code."""
        self._process.communicate(timeout=within)
        return self._process.returncode

    def wait_until(self, condition, *, what: str, within: float = PATIENCE):
        """Look until a condition gives something true, for as long as the router runs; what it gave is returned."""

        def alive() -> None:
            assert self.running, f"the router has ended:\n{self.log[-3000:]}"

        return wait_until(
            condition, within=within, alive=alive, what=lambda: f"{what}\n{self.log[-3000:]}\n{what}", pause=0.2
        )

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.running:
            self.kill()
