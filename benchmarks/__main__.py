"""`python -m benchmarks [program …]`: run the benchmark programs one after another, then print their claims as a table.

A program is a module of this folder that can be run; it writes build/bench/<program>.json:
{"machine": {…}, "claims": [{"id", "ours", "other", "other_name", "ratio", "unit", "n", "runs", "target", "met"}]}.
Exit code 1 where a program failed; a claim that is not met is shown, and fails nothing: machines are shared and noisy.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import FOLDER as RESULTS

FOLDER = Path(__file__).parent
COLUMNS = ("claim", "ours", "other", "against", "ratio", "target", "met")


def programs(folder: Path = FOLDER) -> list[str]:
    """The runnable modules of the folder, by name."""
    paths = (path for path in sorted(folder.glob("*.py")) if path.name != "__main__.py")
    return [path.stem for path in paths if 'if __name__ == "__main__"' in path.read_text(encoding="utf-8")]


def run(program: str) -> bool:
    """Run one program in a process of its own; its output goes where ours does."""
    print(f"== {program}", flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{program}"], check=False).returncode == 0


def rows(results: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One row a claim, in the order of ``COLUMNS``; numbers with three significant digits."""
    return [_row(claim) for result in results for claim in result["claims"]]


def _row(claim: Mapping[str, Any]) -> tuple[str, ...]:
    ours, other = (f"{_figure(claim[side])} {claim['unit']}" for side in ("ours", "other"))
    met = "yes" if claim["met"] else "NO"
    return (claim["id"], ours, other, claim["other_name"], _figure(claim["ratio"]), _figure(claim["target"]), met)


def _figure(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(body: list[tuple[str, ...]]) -> str:
    """The rows under their heads, each column as wide as its widest cell."""
    lines = [COLUMNS, *body]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def main(arguments: list[str]) -> int:
    """Run the given programs, or all; print what build/bench holds of them."""
    known = programs()
    if unknown := set(arguments) - set(known):
        print(f"no program {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = arguments or known
    failed = [program for program in chosen if not run(program)]
    written = (RESULTS / f"{program}.json" for program in chosen if program not in failed)
    print(table(rows(json.loads(path.read_text(encoding="utf-8")) for path in written if path.exists())))
    for program in failed:
        print(f"{program} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
