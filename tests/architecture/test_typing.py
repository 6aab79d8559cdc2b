"""A type checker finds wrong event fields, wrong arguments and names that do not exist in a user's code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = Path(__file__).parent / "typed"

_WANTED = re.compile(r"  # (error|note): (.+)$")
_SAID = re.compile(r"^(?P<file>.+\.py):(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)$")


def wanted() -> dict[tuple[str, int], str]:
    """By file and line: the code of an error, or the end of a revealed type."""
    found = {}
    for path in CODE.glob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if marked := _WANTED.search(line):
                found[path.name, number] = f"[{marked[2]}]" if marked[1] == "error" else marked[2]
    return found


def said(cache: Path) -> dict[tuple[str, int], str]:
    """What mypy says of a line, by file and line; its notes on errors left out."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    files = [str(path) for path in sorted(CODE.glob("*.py"))]
    options = ["--cache-dir", str(cache), "--no-error-summary", "--disable-error-code=unused-ignore"]
    done = subprocess.run([*command, *options, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    lines = [match for line in done.stdout.splitlines() if (match := _SAID.match(line))]
    told = [line for line in lines if line["kind"] == "error" or line["text"].startswith("Revealed")]
    return {(Path(line["file"]).name, int(line["line"])): line["text"] for line in told}


@pytest.mark.builds
def test_a_type_checker_says_of_each_line_what_is_wrong_with_it(tmp_path: Path) -> None:
    expected, found = wanted(), said(tmp_path / "cache")
    assert len(expected) > 20
    assert found.keys() == expected.keys()
    assert {place: text for place, text in found.items() if not text.endswith(expected[place])} == {}
