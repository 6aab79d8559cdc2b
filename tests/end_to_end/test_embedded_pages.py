"""The pages' programs that need no server, run as a newcomer runs them: a file, a fresh process, no jars, no stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.test_documentation import EMBEDDED, PAGES, ROOT, blocks, program

README_LINES = 40

# One process for all of them: Java is started once, and each program has a folder and a Spark session of its own.
ONE_AFTER_ANOTHER = (
    "import os, runpy, sys\n"
    "for file in sys.argv[1:]:\n"
    "    os.chdir(os.path.dirname(file)); runpy.run_path(file, run_name='__main__'); print('ran', file)\n"
)


def pages():
    return [page for page in PAGES if any(block.kind == EMBEDDED for block in blocks(page))]


def test_the_readme_goes_from_class_to_queried_view_in_forty_lines():
    (block,) = [block for block in blocks(ROOT / "README.md") if block.kind == EMBEDDED]
    assert len(block.lines) <= README_LINES


def test_the_embedded_python_of_the_pages_runs(tmp_path):
    files = []
    for page in pages():
        file = tmp_path / page.stem.lower().replace("-", "_") / "page.py"
        file.parent.mkdir()
        file.write_text(program(page, EMBEDDED), encoding="utf-8")
        files.append(str(file))
    assert len(files) >= 2
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FACTFOLD_")}
    # An empty home and cache: whatever had been fetched before is not there.
    home = {"HOME": str(tmp_path), "FACTFOLD_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_ANOTHER, *files],
        env=environment | home, cwd=Path(tmp_path), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("ran ")] == [f"ran {file}" for file in files]
    assert not (tmp_path / "cache" / "jars").exists()
