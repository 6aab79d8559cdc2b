"""Functions and files stay as small as those of the codebases we admire (measured: median 4 to 10 lines)."""

from __future__ import annotations

import ast
import functools
import io
import statistics
import tokenize
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


WORDLESS = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}


def code_lines(text):
    """The number of lines with code: docstrings, comments and blank lines are none."""
    spans = [
        (token.start[0], token.end[0])
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in WORDLESS
    ]
    lines = {line for first, last in spans for line in range(first, last + 1)}
    return len(lines - {line for node in ast.walk(ast.parse(text)) for line in docstring(node)})


def docstring(node):
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ()
    if ast.get_docstring(node, clean=False) is None:
        return ()
    return range(node.body[0].lineno, node.body[0].end_lineno + 1)


@functools.cache
def file_sizes():
    return {str(path.relative_to(ROOT)): code_lines(path.read_text(encoding="utf-8")) for path in sources()}


def test_half_of_all_functions_have_at_most_eight_lines():
    assert len(functions()) > 1_000
    assert statistics.median(functions().values()) <= 8


def test_no_function_has_more_than_sixty_lines():
    assert {name: length for name, length in functions().items() if length > 60} == {}


def test_docstrings_comments_and_blank_lines_are_no_code():
    assert code_lines('"""What it is."""\n\n# why\nx = [\n    1,\n]\n\n\ndef f():\n    """Doc."""\n    return x\n') == 5


def test_nine_files_of_ten_have_at_most_two_hundred_and_fifty_lines_of_code():
    long = {name: size for name, size in file_sizes().items() if size > 250}
    assert len(long) <= len(file_sizes()) / 10, long


def test_no_file_has_more_than_four_hundred_lines_of_code():
    assert {name: size for name, size in file_sizes().items() if size > 400} == {}
