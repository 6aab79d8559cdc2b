"""Sentences of pages and of Python modules, for docs.language; code in them becomes the one word CODE."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

Kind = Literal["page", "cell", "message", "output", "docstring", "text"]
_END: Final = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z`\"'(*…0-9])|:\s*$")
_SEVERAL: Final = 3
_SQL: Final = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|select|insert into|union all)\b")
_LOGS: Final = frozenset({"debug", "info", "warning", "error", "exception"})


class Sentence(NamedTuple):
    """One sentence, and where it begins."""

    place: str
    line: int
    text: str
    kind: Kind


def of_page(page: Path, root: Path) -> Iterator[Sentence]:
    """Return the sentences of a Markdown page: paragraphs, items of lists, cells of tables."""
    place = str(page.relative_to(root))
    for line, block in _blocks(page.read_text("utf-8")):
        cells = block.split("|")
        for part in cells:
            for text in _sentences(part):
                yield Sentence(place, line, text, "page" if len(cells) == 1 else "cell")


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Return paragraphs, items and rows with their first lines; a fence of code is none."""
    block: list[str] = []
    start, in_code = 1, False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        fence = line.lstrip().startswith("```")
        ends = fence or in_code or not line.strip() or re.match(r"\s*([-*]|\d+\.|\||#|:::)\s?", line)
        if ends and block:
            yield start, " ".join(block)
            block = []
        in_code ^= fence
        if not (fence or in_code or not line.strip()):
            start = start if block else number
            block.append(re.sub(r"^\s*([-*#>]+|\d+\.|\|)\s*", "", line))


def of_template(template: Path, root: Path) -> Iterator[Sentence]:
    """Return the sentences of a page's template: what stands between its tags."""
    text = re.sub(r"\{[%{#].*?[%}#]\}", " CODE ", template.read_text("utf-8"), flags=re.DOTALL)
    for number, line in enumerate(text.splitlines(), start=1):
        for part in re.split(r"<[^>]*>", line):
            for sentence in _sentences(part):
                yield Sentence(str(template.relative_to(root)), number, sentence, "text")


def of_messages(module: Path, root: Path, documented: Collection[str] = ()) -> Iterator[Sentence]:
    """Return the sentences of a module's errors, remedies, help texts, printed lines, logs and public docstrings.

    Public are the documented names and their public members, and commands. Of other texts in the code, which may become
    a part of a message, those of several words are returned.
    """
    place = str(module.relative_to(root))
    tree = ast.parse(module.read_text("utf-8"))
    shown = [(node, kind, text) for node in ast.walk(tree) for kind, text in _texts(node)]
    for node, kind, text in [*shown, *_other_texts(tree, {text for _, _, text in shown})]:
        for sentence in _sentences(text):
            yield Sentence(place, getattr(node, "lineno", 1), sentence, kind)
    for line, text in _docstrings(tree.body, documented):
        for sentence in _sentences(text):
            yield Sentence(place, line, sentence, "docstring")


def _texts(node: ast.AST) -> Iterator[tuple[Kind, str]]:
    """Return what a call shows to people; output is a line of facts, which a semicolon may part."""
    if not isinstance(node, ast.Call):
        return
    words = {word.arg: word.value for word in node.keywords}
    shown: list[tuple[Kind, ast.AST]] = [
        ("message", words[name]) for name in ("help", "remedy", "message") if name in words
    ]
    if "remedy" in words:  # an error, raised or returned
        shown += [("message", argument) for argument in node.args]
    if isinstance(node.func, ast.Attribute) and node.func.attr in {"echo", *_LOGS}:
        shown += [("output", argument) for argument in node.args[:1]]
    yield from ((kind, text) for kind, argument in shown if (text := _literal(argument)))


def _other_texts(tree: ast.Module, shown: Collection[str]) -> Iterator[tuple[ast.AST, Kind, str]]:
    """Return texts of several words that no call shows; statements of SQL and docstrings are none."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = "" if id(node) in parts else _literal(node)
        if len(text.split()) >= _SEVERAL and text not in shown and not _SQL.search(text):
            yield node, "text", text


def _literal(node: ast.AST) -> str:
    """Return a text as its reader sees it; a value in it is CODE."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_literal(part) if isinstance(part, ast.Constant) else "CODE" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{_literal(body)}\n\n{_literal(other)}"
    return ""


def _docstrings(body: Sequence[ast.stmt], documented: Collection[str]) -> Iterator[tuple[int, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            if "*" in documented or node.name in documented or _is_command(node):
                yield node.lineno, ast.get_docstring(node) or ""
                if isinstance(node, ast.ClassDef):
                    yield from _docstrings(node.body, "*")


def _is_command(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    calls = (one.func for one in node.decorator_list if isinstance(one, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in ("command", "callback") for call in calls)


def _sentences(text: str) -> Iterator[str]:
    text = re.sub(r"^ {4,}.*$", "", text, flags=re.MULTILINE)  # examples, and the arguments of Google's style
    for paragraph in re.split(r"\n\s*\n|\n(?=\w[\w ]*:\s*$)", text):
        plain = re.sub(r"``.*?``|`[^`]*`|\{[^}]*\}", "CODE", " ".join(paragraph.split()))
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        yield from (sentence for part in _END.split(plain) if part and (sentence := part.strip()))
