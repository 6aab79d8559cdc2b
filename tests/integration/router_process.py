"""`factfold branches run` as a process group of its own: stopped by a signal, or killed whole with its JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.command_process import CommandProcess
from tests.waiting import PATIENCE, wait_until

DEFINITION = "tests.integration.payment_branches:payments"


class RouterProcess(CommandProcess):
    """One router over a topic of payments; its log grows from process to process."""

    def __init__(self, bootstrap_servers: str, topic: str, folder: Path, *options: str) -> None:
        self.checkpoints = folder / "checkpoints"
        arguments = ["branches", "run", DEFINITION, "--checkpoints", str(self.checkpoints), "--json", *options]
        settings = {
            "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "FACTFOLD_TEST_TOPIC": topic,
            # Half of what a starting router computes is the second compiler's and the parallel collector's.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        super().__init__(arguments, settings, folder / "router.log")

    def result(self) -> dict[str, Any]:
        """Ask it to stop, and return the last that it tells."""
        assert self.stop() == 0, self.said[-3000:]
        return self.told()[-1]

    def wait_until(self, condition, *, what: str, within: float = PATIENCE):
        """Look until a condition gives something true, for as long as the router runs; what it gave is returned."""
        return wait_until(
            condition, within=within, alive=self.require_alive, what=lambda: f"{what}\n{self.said[-3000:]}", pause=0.2
        )

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._process.poll() is None:
            self.kill()
