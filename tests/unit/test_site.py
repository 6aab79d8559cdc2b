"""The site of docs/: its navigation, its reference of names and its reference of commands are complete."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import yaml

from docs.commands_page import PAGE, page
from docs.documented import entries
from tests.rows import each_row

ROOT = Path(__file__).parents[2]
ENTRIES = entries(ROOT)
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
# Packages whose every public name has an entry. An error may have it by its module.
STUBS = [
    path.parent for package in ("eventstore", "cdc", "projections") for path in (ROOT / package).rglob("__init__.pyi")
]
DOCUMENTED = [
    *sorted(".".join(folder.relative_to(ROOT).parts) for folder in STUBS),
    "eventstore.spans",
]
ERRORS = ["eventstore.errors", "cdc.errors", "projections.errors", "eventstore.processes.errors"]


def navigated(part):
    if isinstance(part, str):
        return [part]
    return [page for each in (part.values() if isinstance(part, dict) else part) for page in navigated(each)]


def anchors(page):
    """The ids that the site gives a page's headings: lower case, without markup, dashes for spaces."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = [re.sub(r"\]\([^)]*\)", "]", line) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def of_errors():
    return {name for module in ERRORS for name in vars(importlib.import_module(module))}


@each_row("package", DOCUMENTED)
def test_the_reference_has_every_public_name(package):
    names = importlib.import_module(package).__all__
    assert [name for name in names if f"{package}.{name}" not in ENTRIES and name not in of_errors()] == []


def test_the_reference_is_short_enough_to_be_read():
    pages = [page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md")]
    assert 100 < sum(len(re.findall(r"^::: ", text, re.MULTILINE)) for text in pages) <= 220


def test_the_entry_of_a_module_is_its_documented_names():
    assert {"cdc.transforms.Flatten", "eventstore.processes.functional.process_of"} <= set(ENTRIES)
    assert "cdc.transforms" not in ENTRIES


def test_the_reference_has_each_name_once():
    assert [name for name, times in Counter(ENTRIES).items() if times > 1] == []


def test_the_reference_has_only_names_that_exist():
    homes = [name.rpartition(".") for name in ENTRIES if name not in ERRORS]
    assert [(home, name) for home, _, name in homes if not hasattr(importlib.import_module(home), name)] == []
    assert set(ERRORS) <= set(ENTRIES)


@each_row("page_of_docs", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.stem)
def test_a_page_imports_only_documented_names(page_of_docs):
    text = page_of_docs.read_text("utf-8")
    code = "\n".join(re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    imports = re.findall(
        r"^\s*from ((?:eventstore|cdc|projections|factfold)[\w.]*) import (\([^)]*\)|[^\n#]+)", code, re.MULTILINE
    )
    names = {
        (home, name.partition(" as ")[0].strip())
        for home, several in imports
        for name in several.strip("()").split(",")
    }
    unknown = {f"{home}.{name}" for home, name in names if name and home not in ERRORS} - set(ENTRIES)
    assert unknown == set()


def test_the_page_of_commands_is_what_the_program_says():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m docs.commands_page"


def test_the_navigation_has_every_page_once_but_the_single_decisions():
    pages = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md")}
    listed = navigated(SITE["nav"])
    assert sorted(listed) == sorted(page for page in pages if not re.match(r"decisions/\d", page))


def test_no_page_links_to_a_file_that_is_not_on_the_site():
    links = [
        (file, target)
        for file in DOCS.rglob("*.md")
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", file.read_text("utf-8"))
    ]
    local = [(file, (file.parent / target).resolve()) for file, target in links if "://" not in target]
    assert [(str(file), str(target)) for file, target in local if not target.is_relative_to(DOCS)] == []


def test_every_link_to_a_heading_leads_to_one():
    linked = [
        (file, file.parent / target if target else file, anchor)
        for file in DOCS.rglob("*.md")
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", file.read_text("utf-8"))
    ]
    assert len(linked) > 20
    assert [(str(file), anchor) for file, target, anchor in linked if anchor not in anchors(target)] == []


def test_a_fence_within_a_list_has_four_spaces_without_which_the_site_shows_it_as_text():
    pages = {file: file.read_text("utf-8") for file in DOCS.rglob("*.md")}
    assert [str(file) for file, text in pages.items() if re.search(r"^ {1,3}```", text, re.MULTILINE)] == []


def test_the_site_loads_nothing_from_other_hosts():
    assert SITE["theme"]["font"] is False
    scripts = SITE["extra"]["polyfills"]
    assert any("iframe-worker" in script for script in scripts)  # else the theme loads it from a CDN
    assert all((DOCS / script).is_file() for script in scripts)
