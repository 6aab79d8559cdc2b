"""The page that leads to the rooms names every room, terms of the glossary, and files that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from projections.declaring.columns import Kind

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/find-your-way.md").read_text(encoding="utf-8")
ROWS = [(m[1], m[2], m[3]) for m in re.finditer(r"^\| (.+?) \| `([a-z_/]+)` \| `([^`]+)` \|$", PAGE, re.M)]
ROOMS = {
    str(init.parent.relative_to(ROOT))
    for package in ("eventstore", "cdc", "projections", "factfold")
    for pattern in ("*/__init__.py", "cli/*/__init__.py")
    for init in (ROOT / package).glob(pattern)
}
RULE = re.compile(r"The room imports .*(never|No other room|No store)", re.S)


def test_every_room_has_a_row_and_every_row_leads_to_a_file():
    assert ROOMS - {room for _, room, _ in ROWS} == set()
    assert [f"{room}/{file}" for _, room, file in ROWS if not (ROOT / room / file).exists()] == []


def test_bold_terms_are_those_of_the_glossary():
    glossary = set(re.findall(r"^- \*\*\[?([^*\]]+)", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.M))
    terms = [term for words, _, _ in ROWS for term in re.findall(r"\*\*([^*]+)\*\*", words)]
    assert len(terms) > 50
    assert set(terms) - glossary == set()


def tables_of_kinds() -> Iterator[tuple[str, set[str]]]:
    """Each table in the code that is keyed by kinds of columns, with its keys."""
    for path in sorted((ROOT / "projections").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            keys = (
                {key.value for key in node.keys if isinstance(key, ast.Constant)} if isinstance(node, ast.Dict) else ()
            )
            if len(keys) > len(get_args(Kind)) // 2 and set(keys) <= {*get_args(Kind)}:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", set(keys)


def test_every_table_of_column_kinds_has_each_kind_but_decimals_which_have_digits():
    tables = dict(tables_of_kinds())
    assert len(tables) > 8
    assert {place: lacks for place, keys in tables.items() if (lacks := {*get_args(Kind)} - keys - {"decimal"})} == {}


def test_files_named_outside_of_the_table_exist():
    named = re.findall(r"\(`([a-z_]+\.py)`\)", PAGE)
    assert [file for file in named if not (ROOT / "eventstore" / file).exists()] == []


def test_the_first_lines_of_a_room_say_what_it_may_import_and_what_it_never_knows():
    texts = {room: ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text("utf-8"))) for room in ROOMS}
    assert {room for room, text in texts.items() if not RULE.search(text or "")} == set()
