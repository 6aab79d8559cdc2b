"""Functions and files stay as small as those of the codebases we admire (measured: median 4 to 10 lines)."""

from __future__ import annotations

import ast
import functools
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("eventstore", "cdc", "projections", "factfold", "sample_app", "benchmarks", "tests")


def sources():
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def functions():
    """Name and length of each function, from its def to its last line."""
    return {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@functools.cache
def file_lengths():
    return {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}


def test_half_of_all_functions_have_at_most_eight_lines():
    assert len(functions()) > 1_000
    assert statistics.median(functions().values()) <= 8


def test_no_function_has_more_than_sixty_lines():
    assert {name: length for name, length in functions().items() if length > 60} == {}


def test_nine_files_of_ten_have_at_most_three_hundred_lines():
    lengths = file_lengths()
    long = {name: length for name, length in lengths.items() if length > 300}
    assert len(long) <= len(lengths) / 10, long


def test_no_file_has_more_than_four_hundred_and_fifty_lines():
    assert {name: length for name, length in file_lengths().items() if length > 450} == {}
