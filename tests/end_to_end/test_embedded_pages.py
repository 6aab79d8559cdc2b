"""The pages' programs that need no server, run as a newcomer runs them: a file, a fresh process, no jars, no stack."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.test_documentation import EMBEDDED, PAGES, ROOT, blocks, program

README = ROOT / "README.md"
RECIPES = ROOT / "docs/how-to/view-recipes.md"
EXPLAIN = "$ factfold projections explain shop:recipes "
# What the command prints, without a process of its own for each view.
DRAWING = """
from projections import explain
from projections.stores.explaining import drawn
for view in {views}:
    print(*drawn(explain("sqlite:///recipes.db", recipes, view)), sep="\\n")
"""
EXAMPLE_LINES = [15, 25]  # of the README's two examples, without blank ones

# One process for all of them: Java is started once, and each program has a folder and a Spark session of its own.
ONE_AFTER_ANOTHER = (
    "import os, runpy, sys\n"
    "for file in sys.argv[1:]:\n"
    "    os.chdir(os.path.dirname(file)); print('page', file); runpy.run_path(file, run_name='__main__')\n"
)


def pages():
    """Pages with a program; a page that repeats one, as the site's first does the README's, is not run again."""
    programs = {}
    for page in PAGES:
        code = tuple(line for block in blocks(page) if block.kind == EMBEDDED for line in block.lines)
        programs.setdefault(code, page)
    return [page for code, page in programs.items() if code]


def printed_in(page):
    """What a page shows under its programs: the block of text that follows each."""
    shown = list(blocks(page))
    following = [after for block, after in pairwise(shown) if (block.kind, after.kind) == (EMBEDDED, "text")]
    return [line for block in following for line in block.lines]


def drawings():
    """The stages that the page of recipes shows, by view."""
    shown = [block.lines for block in blocks(RECIPES) if block.lines[0].startswith(EXPLAIN)]
    return {lines[0].removeprefix(EXPLAIN): lines[1:] for lines in shown}


def test_the_readme_has_two_examples_of_few_lines():
    examples = [block.lines for block in blocks(README) if block.kind == EMBEDDED]
    lengths = [len([line for line in lines if line]) for lines in examples]
    assert all(length <= most for length, most in zip(lengths, EXAMPLE_LINES, strict=True)), lengths


@pytest.mark.timeout(540)  # all pages after one another
def test_the_embedded_python_of_the_pages_runs_and_prints_what_the_readme_shows(tmp_path):
    files = []
    for page in pages():
        file = tmp_path / page.stem.lower().replace("-", "_") / "page.py"
        file.parent.mkdir()
        drawing = DRAWING.format(views=list(drawings())) if page == RECIPES else ""
        file.write_text(program(page, EMBEDDED) + drawing, encoding="utf-8")
        files.append(str(file))
    assert len(files) >= 2
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FACTFOLD_")}
    # An empty home and cache: whatever had been fetched before is not there.
    home = {"HOME": str(tmp_path), "FACTFOLD_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_ANOTHER, *files],
        env=environment | home, cwd=Path(tmp_path), capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    assert done.stderr == ""  # what Spark prints at every start included
    printed = {file: lines for file, *lines in (each.splitlines() for each in done.stdout.split("page ")[1:])}
    assert list(printed) == files
    assert printed[files[pages().index(README)]] == printed_in(README) != []
    drawn = [line for lines in drawings().values() for line in lines]
    assert printed[files[pages().index(RECIPES)]][-len(drawn) :] == drawn != []
    assert not (tmp_path / "cache" / "jars").exists()
