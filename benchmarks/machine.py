"""The machine a benchmark ran on, and the one form in which results are written."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from sample_app.versions import running_versions

FOLDER = Path("build/bench")


@dataclass(frozen=True)
class Claim:
    """Ours against another program in one run; ``ratio`` is ours by other, ``met`` whether it reaches the target."""

    id: str
    ours: float
    other: float
    other_name: str
    ratio: float
    unit: str
    n: int
    runs: int
    target: float
    met: bool


def at_least(
    id: str, *, ours: float, other: float, other_name: str, unit: str, n: int, runs: int, target: float
) -> Claim:
    """A claim that the ratio of two rates is at least a target."""
    ratio = ours / other
    rounded = (round(ours, 1), round(other, 1))
    return Claim(id, *rounded, other_name, round(ratio, 3), unit, n, runs, target, ratio >= target)


def at_most(
    id: str, *, ours: float, other: float, other_name: str, unit: str, n: int, runs: int, target: float
) -> Claim:
    """A claim that what ours takes, by what the other takes, is at most a target."""
    ratio = ours / other
    rounded = (round(ours, 3), round(other, 3))
    return Claim(id, *rounded, other_name, round(ratio, 3), unit, n, runs, target, ratio <= target)


def write(program: str, claims: list[Claim], **more: object) -> Path:
    """Write ``build/bench/<program>.json``."""
    machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    facts = {"machine": machine, "versions": running_versions(), "claims": [asdict(c) for c in claims], **more}
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{program}.json"
    path.write_text(json.dumps(facts, indent=2) + "\n")
    return path
