"""What Spark says of a query's error, as logs and dead letters may have it: its kind and its place, and no value.

[CAST_INVALID_INPUT] The value 'ann@example.org' of the type "STRING" cannot be …   → '***'
ValueError: no such person: Ann                                                     → ValueError
"""

from __future__ import annotations

import builtins
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from eventstore.delivery.source import MASK

_LENGTH: Final = 300
# SQL's classes of errors that a value causes; of those that are not of its type, the text may be any value's.
_DATA_ERROR: Final = re.compile(r"\[([A-Z][\w.]*)\] (.*?)SQLSTATE: (22\w{3}|23\w{3}|P0001)\b", re.S)
_OF_TYPE: Final = "22"
_FREE_TEXT: Final = re.compile(r": (?!\s).*?(?=\.\s|$)", re.S)
_QUOTE: Final = re.compile(r"(?<!\w)'")
_NUMBER: Final = re.compile(r'(?P<type>"[^"]*"|\bdecimal\([\d, -]+\))|(?<![\w.])-?\d[\w.:+-]*(?<![.:])', re.I)

_DATAFRAME: Final = re.compile(r"^== DataFrame ==\n(\"[^\n]*\") was called from\n([^\n]+)", re.M)
_LINE: Final = re.compile(r"(\.py|<[^>]*>):\d+$|^line \d+ in cell")
_SQL: Final = re.compile(r"^== SQL[^\n]*\(line (\d+), position (\d+)\) ==\n([^\n]*)\n( *)(\^+)", re.M)

# A traceback that Python printed, and the class of what was raised; lines that belong to it are indented.
_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\):\n((?:[ ]+[^\n]*\n)*)([^\W\d][\w.]*)(.*)$", re.M)
_FRAME: Final = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.M)
_SYSTEM_ERRORS: Final = frozenset(
    name for name, e in vars(builtins).items() if isinstance(e, type) and issubclass(e, OSError)
)
_OURS: Final = ("projections.", "eventstore.", "cdc.")  # typed: a database that does not answer, a key that is away
# Modules whose texts quote values only where `masked` sees them.
_KNOWN: Final = (*_OURS, "pyspark.", "pyarrow.")
_ROOT: Final = Path(__file__).parents[2]
_NO_USERS: Final = (
    sysconfig.get_paths()["stdlib"],
    *(str(_ROOT / package) + "/" for package in ("projections", "eventstore", "cdc", "factfold")),
)


class QueryError(NamedTuple):
    """An error that a value or code caused; one `of_code`, or of a value that is not of its type, comes again."""

    cause: str
    where: str | None
    of_code: bool = True


def query_error(message: str) -> QueryError | None:
    """Return what may be shown of an error that a value or the user's code causes; None for one that may pass."""
    if data_error := _DATA_ERROR.search(message):
        return QueryError(
            _data_cause(data_error), _called_from(message[data_error.end() :]), data_error[3].startswith(_OF_TYPE)
        )
    raised = _raised(message)
    if raised is None or raised[2] in _SYSTEM_ERRORS or raised[2].startswith(_OURS):
        return None
    return QueryError(python_cause(message) or "", _user_frame(raised[1]))


def python_cause(message: str) -> str | None:
    """Return the class of the last exception that Python code raised, its text where that is not the user's."""
    raised = _raised(message)
    if raised is None:
        return None
    kind, text = raised[2], raised[3].removeprefix(":").strip()
    if kind.startswith("projections."):
        return f"{kind}: {text}"[:_LENGTH]  # raised at the database, whose errors leave the values out
    is_shown = text and (kind in _SYSTEM_ERRORS or kind.startswith(_KNOWN))
    return f"{kind}: {masked(text)}"[:_LENGTH] if is_shown else kind


def masked(text: str) -> str:
    """Return a text without what may be values: all between its quotes, and numbers that are not of a type."""
    if opened := _QUOTE.search(text):
        first, last = opened.start(), text.rfind("'")
        text = f"{text[:first]}'{MASK}'{text[last + 1 :] if last > first else ''}"
    return _NUMBER.sub(lambda match: match["type"] or MASK, text)


def _data_cause(data_error: re.Match[str]) -> str:
    condition, text, state = data_error.groups()
    if not state.startswith(_OF_TYPE):
        return f"[{condition}] SQLSTATE: {state}"
    shown = " ".join(_FREE_TEXT.sub(f": {MASK}", masked(text)).split())
    return f"[{condition}] {shown[:_LENGTH]} SQLSTATE: {state}"


def _called_from(context: str) -> str | None:
    """The line of the user's that the expression is in, of what stands behind Spark's message."""
    if match := _DATAFRAME.search(context):
        site = match[2].strip()  # a session that notes no lines has a call of the JVM there
        return f"{site}: {match[1]}" if _LINE.search(site) else match[1]
    if match := _SQL.search(context):
        start = len(match[4])
        return f"SQL line {match[1]}, position {match[2]}: {match[3][start : start + len(match[5])]}"
    return None


def _raised(message: str) -> re.Match[str] | None:
    last = None
    for last in _TRACEBACK.finditer(message):  # noqa: B007 - the last one is what was raised in the end
        pass
    return last


def _user_frame(frames: str) -> str | None:
    """The innermost line that is the user's; where none is, the innermost."""
    entries = list(_frames(frames))
    own = [frame for frame in entries if not _is_library(frame[0])]
    if not entries:
        return None
    path, line, function = (own or entries)[-1]
    return f"{path}:{line}: {function}"


def _frames(frames: str) -> Iterator[tuple[str, str, str]]:
    yield from ((match[1], match[2], match[3].strip()) for match in _FRAME.finditer(frames))


def _is_library(path: str) -> bool:
    return "/site-packages/" in path or "/pyspark.zip/" in path or path.startswith(("<", *_NO_USERS))
