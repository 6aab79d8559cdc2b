"""Each planted fault is seen: the tests that its entry names fail in a copy of the tree that has the fault.

The copy passes the same tests without a fault. Every fault has a process of its own, and the file is restored after it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.planted.faults import ROOT, Fault, planted_faults

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800)]

FAULTS = planted_faults()
NO_PART_OF_A_COPY = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info", "spark-warehouse")
# The sizes of a run with kills, and what this pytest says of itself.
NOT_HANDED_ON = ("FACTFOLD_KILLS", "FACTFOLD_EXAMPLES", "FACTFOLD_FLIGHTS", "FACTFOLD_SEED", "PYTEST_", "PYTHONPATH")
# An assertion in a fixture is as good as one in a test.
FAILED = re.compile(r"^FAILED |^E +AssertionError", re.M)
# Broken code would be noticed by any test, and a test that takes too long says nothing.
NO_PROOF = re.compile(
    r"^E +(NameError|ImportError|ModuleNotFoundError|SyntaxError|IndentationError|Failed: Timeout)\b"
    r"|\+ Timeout \+",
    re.M,
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, in which faults are planted."""
    folder = tmp_path_factory.mktemp("planted") / "tree"
    shutil.copytree(ROOT, folder, ignore=NO_PART_OF_A_COPY)
    return folder


def run_tests(folder: Path, tests: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run tests in a process of its own that imports the product from the folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(NOT_HANDED_ON)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1_700)


@contextmanager
def planted(folder: Path, fault: Fault) -> Iterator[None]:
    """Let the copy have the fault for the length of the block."""
    file = folder / fault.file
    before = file.read_text(encoding="utf-8")
    after = fault.planted(before)
    ast.parse(after)
    try:
        rewrite(file, after)
        yield
    finally:
        rewrite(file, before)


def rewrite(file: Path, text: str) -> None:
    """Write a module, and delete its bytecode: a change of the same length within a second leaves that valid."""
    file.write_text(text, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def test_without_a_fault_every_test_passes(copy):
    done = run_tests(copy, sorted({test for fault in FAULTS for test in fault.tests}))
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_is_seen(copy, fault):
    with planted(copy, fault):
        done = run_tests(copy, fault.tests, "-x")
    output = done.stdout[-5_000:] + done.stderr[-2_000:]
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, f"{fault.mechanism}\n{output}"
    assert FAILED.search(done.stdout), output
    assert not NO_PROOF.search(done.stdout + done.stderr), output
