"""Check the English of pages, messages and docstrings: `python -m docs.language`, a part of `make check`.

The rules are those of CONTRIBUTING.md: words that need decoding, long sentences, semicolons in messages. Code and
quoted output are left out. Exit code 1 if a sentence breaks a rule, with its place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from docs.documented import documented
from docs.sentences import Sentence, of_messages, of_page, of_template

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("eventstore", "cdc", "projections", "factfold", "sample_app", "benchmarks")
LONGEST: Final = 42
"""Words in the longest sentence. The rule is 20 on average, which is checked for each file."""
AVERAGE: Final = 20.0
LISTS: Final = ("cell", "text")  # kinds of sentences that may be lists, of any length
FEWEST: Final = 8  # sentences that an average is taken of

INSTEAD: Final = {
    r"who|whom|whoever|nobody|somebody": "name the person or the program, or say 'you'",
    r"told": "say 'reported', 'shown', 'an error', 'distinguished'",
    r"anew": "say 'again', 'new' or 'recreated'",
    r"beside": "say 'next to', 'with' or 'in addition to'",
    r"gone": "say 'deleted', 'missing' or 'stopped'",
    r"kept": "say 'stored', 'retained' or 'unchanged'",
    r"wanted": "say 'expected', 'required' or 'requested'",
    r"what is there": "name it",
    r"that is why": "say 'therefore', or leave it out",
    r"of today": "say 'current'",
    r"(?<=[,;:] )so(?! (?:that|far|long|many|much)\b)": "end the sentence, or say 'therefore'",
}


class Finding(NamedTuple):
    """What breaks a rule, and where."""

    place: str
    line: int
    problem: str
    sentence: str


def findings(sentences: list[Sentence]) -> Iterator[Finding]:
    """Return what is wrong with the sentences of one file, in their order."""
    for place, line, text, kind in sentences:
        for problem in _problems(text, kind):
            yield Finding(place, line, problem, text)
    lengths = [length for one in sentences if one.kind not in LISTS and (length := words(one.text)) > 2]
    if len(lengths) >= FEWEST and sum(lengths) / len(lengths) > AVERAGE:
        average = sum(lengths) / len(lengths)
        yield Finding(sentences[0].place, 1, f"{average:.0f} words a sentence on average: at most {AVERAGE:.0f}", "")


def _problems(text: str, kind: str) -> Iterator[str]:
    for word, instead in INSTEAD.items():
        for match in re.finditer(rf"\b(?:{word})\b", text, re.IGNORECASE):
            yield f"{match[0]!r}: {instead}"
    longest = max(words(clause) for clause in text.split(";"))
    if longest > LONGEST and kind not in LISTS:
        yield f"{longest} words: at most {LONGEST}; make it two sentences"
    if kind in ("message", "docstring") and ";" in text:
        yield "a semicolon in a message or docstring: make it two sentences"
    if re.search(r"\bRaises \w+ where\b", text):
        yield "'Raises … where': say 'Raises … if'"


def words(text: str) -> int:
    """Count the words of a sentence; a piece of code is one word, and a figure is none."""
    return sum(not word[0].isdigit() for word in re.findall(r"[\w’'/.-]*\w", text))


def checked(root: Path = ROOT) -> Iterator[Finding]:
    """Check every page, every message and every template of a checkout."""
    for page in _pages(root):
        yield from findings(list(of_page(page, root)))
    public = documented(root)
    for module in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        yield from findings(list(of_messages(module, root, public.get(module, frozenset()))))
    for template in sorted((root / "factfold").rglob("*.html")):
        yield from findings(list(of_template(template, root)))


def _pages(root: Path) -> list[Path]:
    """The pages that users and maintainers read."""
    tops = (root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))
    return sorted([*tops, *(root / "docs").rglob("*.md")])


def main(places: list[str]) -> int:
    """Print what breaks a rule, in the files whose paths begin with one of the places if any are given."""
    problems = [one for one in checked() if not places or one.place.startswith(tuple(places))]
    for one in problems:
        print(f"{one.place}:{one.line}: {one.problem}\n    {one.sentence[:400]}")  # noqa: T201
    if problems:
        print(f"error: {len(problems)} sentences break the rules of CONTRIBUTING.md\n  remedy: write them as it says")  # noqa: T201
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
