"""The Python of README and docs runs.

A page's blocks are one program, run from top to bottom in an empty folder. Blocks that begin with ```python server need
the local stack: those are compiled, and every name they import must exist, but for modules that the page itself has, as
blocks that begin with `# package/module.py`; tests/integration/test_server_pages.py and
test_schema_registry.py run some on the session's stack. Those of ```python embedded start a Spark of
their own; tests/end_to_end/test_embedded_pages.py runs them, as files of a process without our test session. A block
```python file is a file of the tutorial, named by its first line; tests/end_to_end/test_tutorial.py runs them. A block
```python peer is code of another project, which is not installed here: it compiles.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine

from eventstore import SqlEventStore
from tests.rows import each_row

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
HERE, ON_SERVERS, EMBEDDED, PEER = "python", "python server", "python embedded", "python peer"


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands after its fence, the line its text begins at (from 0), its lines."""

    kind: str
    start: int
    lines: list[str]


def blocks(page):
    lines, start = page.read_text(encoding="utf-8").splitlines(), None
    for number, line in enumerate(lines):
        if line.startswith("```") and start is None:
            start = number + 1
        elif line.startswith("```"):
            yield Block(lines[start - 1].removeprefix("```").strip(), start, lines[start:number])
            start = None
    assert start is None, f"{page}: the fence at line {start} is never closed"


def program(page, *kinds):
    """The page's blocks of some kinds as one program, every line with the number it has in the page."""
    lines = [""] * len(page.read_text(encoding="utf-8").splitlines())
    for block in blocks(page):
        if block.kind in kinds:
            lines[block.start : block.start + len(block.lines)] = block.lines
    return "\n".join(lines).rstrip() + "\n"


def pages_with(kind):
    return [page for page in PAGES if any(block.kind == kind for block in blocks(page))]


def place(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages_with(HERE), ids=place)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"page_{re.sub(r'[^a-z0-9]', '_', page.stem.lower())}"
    file = tmp_path / f"{name}.py"
    file.write_text(program(page, HERE), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # annotations of aggregates are looked up there
    spec.loader.exec_module(module)
    for value in vars(module).values():  # a page ends with its process; here that would be a ResourceWarning (3.13)
        if isinstance(value, SqlEventStore):
            value.close()
        elif isinstance(value, Engine):
            value.dispose()


@each_row("page", pages_with(ON_SERVERS), ids=place)
def test_python_that_needs_servers_compiles_and_imports_what_there_is(page):
    text = program(page, ON_SERVERS)
    its_own = set(re.findall(r"^# (\w+)/\w+\.py$", text, re.MULTILINE))
    imports = [node for node in ast.walk(ast.parse(text, str(page))) if isinstance(node, ast.ImportFrom)]
    for node in [node for node in imports if node.module not in its_own]:
        module = importlib.import_module(node.module)
        assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("page", pages_with(PEER), ids=place)
def test_python_of_other_projects_compiles(page):
    assert ast.parse(program(page, PEER), str(page)).body


@each_row("page", PAGES, ids=place)
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def prose(page):
    """The sentences of a page that people read: without code, link targets, tables' rules and markup."""
    text = re.sub(r"^```.*?^```$", "\n\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", text))
    # A heading, a list's item and a table's cell are sentences of their own.
    parts = re.split(r"\n\s*\n|^\s*(?:[-#]+|\d+\.)\s|\|", text, flags=re.MULTILINE)
    return [sentence for part in parts for sentence in re.split(r"(?<=[.!?])[*_]*\s", part) if sentence.strip()]


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs/README.md"], ids=["README", "docs"])
def test_no_sentence_of_a_front_page_is_over_thirty_words(page):
    sentences = prose(page)
    assert len(sentences) > 20
    assert [sentence for sentence in sentences if len(sentence.split()) > 30] == []


def test_the_readme_is_short_and_says_first_what_it_is():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert all(term in "\n".join(lines[:5]) for term in ("event sourcing", "change data capture"))
    assert len(re.findall(r"(?<!!)\[[^]]*\]\(", "\n".join(lines))) <= 10


def test_the_site_opens_with_the_examples_of_the_readme_and_neither_is_wider_than_the_site():
    shown = {page: [block.lines for block in blocks(page)] for page in (ROOT / "README.md", ROOT / "docs/README.md")}
    readme, site = shown.values()
    assert [lines for lines in site if lines not in readme] == []
    assert {block.kind for block in blocks(ROOT / "docs/README.md")} == {"sh", EMBEDDED, "text"}
    assert [line for several in shown.values() for lines in several for line in lines if len(line) > 95] == []


@pytest.mark.parametrize("folder", ["concepts", "how-to"])
def test_the_index_of_a_folder_has_every_page_of_it(folder):
    pages = {page.name for page in (ROOT / "docs" / folder).glob("*.md")} - {"README.md"}
    text = (ROOT / "docs" / folder / "README.md").read_text(encoding="utf-8")
    assert pages - set(re.findall(r"\]\(([\w-]+\.md)\)", text)) == set()
    assert folder == "concepts" or len(re.findall(r"^- ", text.partition("\n## ")[0], re.MULTILINE)) == 5


def test_no_block_of_code_is_of_an_unknown_kind():
    kinds = {block.kind for page in PAGES for block in blocks(page)}
    assert kinds <= {HERE, ON_SERVERS, EMBEDDED, PEER, "python file", "sh", "sql", "text", "toml", "json", "yaml"}
