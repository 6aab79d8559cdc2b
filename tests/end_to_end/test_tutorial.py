"""The tutorial's text alone leads through it: its files are written, its commands run, its output is what is printed.

The environment has the built wheel and nothing of the repository. A shell runs each block of commands as a reader does:
each command is a process of its own, and those that need Spark start Java.
"""

from __future__ import annotations

import os
import re
import subprocess
import time

import pytest

from tests.end_to_end.conftest import LIGHT
from tests.unit.test_documentation import ROOT, blocks

pytestmark = pytest.mark.builds
FILE, COMMANDS, OUTPUT = "python file", "sh", "text"
# What differs from run to run: moments, durations, rates.
CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+Z)?|\d+\.\d+ s|\d+ records/s|idle for \d:\d\d:\d\d|about .* while"
)

# A joined view is live after step 3: the promise of README, on two cores. What pip downloads is not in it.
LIVE, SECONDS = "3-live-view.md", 600


def steps():
    """Each block of commands, the files that the text has its reader write before, and the output shown below."""
    files, found = [], []
    for page in sorted((ROOT / "docs/tutorial").glob("[1-9]-*.md")):
        before = None
        for block in blocks(page):
            if block.kind == FILE:
                files.append((block.lines[0].removeprefix("# "), "\n".join(block.lines[1:]) + "\n"))
            elif block.kind == COMMANDS:
                found.append({"page": page.name, "files": files, "commands": block.lines, "output": []})
                files = []
            elif block.kind == OUTPUT and before == COMMANDS:
                found[-1]["output"] = block.lines
            before = block.kind
    return found


def lasting(text):
    return [CHANGING.sub("…", line).rstrip() for line in text.rstrip().splitlines()]


def shell(lines, *, folder, environment):
    """Run commands in a shell that ends with the first failure, and return what they print."""
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, (lines, done.stdout, done.stderr[-4_000:])
    return done.stdout


def test_the_commands_of_the_tutorial_print_what_it_shows_with_the_wheel_alone(programs, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not re.match("PYTHON|FACTFOLD_(?!HOME)", name)}
    environment |= LIGHT | {"PATH": f"{programs}:{os.environ['PATH']}"}
    began, exports = time.monotonic(), []
    for step in steps():
        for name, text in step["files"]:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        printed = shell([*exports, *step["commands"]], folder=tmp_path, environment=environment)
        exports += [line for line in step["commands"] if line.startswith("export ")]
        assert (step["commands"], lasting(printed)) == (step["commands"], lasting("\n".join(step["output"])))
        if step["page"] <= LIVE:
            assert time.monotonic() - began < SECONDS
