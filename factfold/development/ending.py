"""Ends the processes that `factfold dev` and `factfold up` start."""

from __future__ import annotations

import subprocess
from typing import Any


def end(process: subprocess.Popen[Any], *, within: float) -> None:
    """Ask a process to end, and kill it if it runs on after so many seconds."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
