"""The tutorial's text alone leads through it: its files are written, its commands run, its output is what is printed.

The environment has the built wheel and nothing of the repository. All commands run in one process, which starts Java
once. The modules of the reader's project are loaded again for each command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess

from tests.end_to_end.test_installed_package import LIGHT, programs, wheel  # noqa: F401 (the two are fixtures)
from tests.unit.test_documentation import ROOT, blocks

FILE, COMMANDS, OUTPUT = "python file", "sh", "text"
# What differs from run to run: moments, durations, rates.
CHANGING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+Z)?|\d+\.\d+ s|\d+ records/s|idle for \d:\d\d:\d\d")

RUNNER = r"""
import contextlib, io, json, os, runpy, sys

def run(line):
    words = line.split()
    for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:
        del sys.modules[name]
    if words[0] == "export":
        os.environ.update([words[1].split("=", 1)])
    elif words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
    else:
        from factfold.cli import main
        sys.argv = words
        try:
            main()
        except SystemExit as stopped:
            assert not stopped.code, (line, stopped.code)

sys.path.insert(0, "")
results = []
for step in json.load(sys.stdin):
    for name, text in step["files"]:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for line in step["commands"]:
            run(line)
    results.append(printed.getvalue())
print(json.dumps(results))
"""


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


def test_the_commands_of_the_tutorial_print_what_it_shows_with_the_wheel_alone(programs, tmp_path):  # noqa: F811
    environment = {name: value for name, value in os.environ.items() if not re.match("PYTHON|FACTFOLD_(?!HOME)", name)}
    written = steps()
    done = subprocess.run(
        [programs / "python", "-c", RUNNER], input=json.dumps(written), env=environment | LIGHT,
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    printed = json.loads(done.stdout.splitlines()[-1])
    shown = [(step["page"], step["commands"], lasting("\n".join(step["output"]))) for step in written]
    assert shown == [
        (step["page"], step["commands"], lasting(text)) for step, text in zip(written, printed, strict=True)
    ]
