"""Letters grouped by what gave them up: the error and its message without what differs from record to record."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from eventstore.deadletters.letters import Letter

# Ids, quoted values and numbers: `no room for 2` and `no room for 37` are one cause.
_DIFFERS: Final = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|'[^']*'|\"[^\"]*\"|(?<![A-Za-z0-9])[-+]?\d[\d.,:]*"
)
PLACEHOLDER: Final = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Letters of one cause: `pattern` is their message, `…` for what differs, `example` the newest message."""

    error: str
    pattern: str
    example: str
    count: int
    attempts: int
    first: datetime | None
    last: datetime | None
    letters: tuple[str, ...]


def pattern_of(message: str) -> str:
    """Return the first line of a message, with `…` for ids, quoted values and numbers."""
    return _DIFFERS.sub(PLACEHOLDER, message.partition("\n")[0]).strip()


def by_cause(letters: Iterable[Letter]) -> list[Cause]:
    """Group letters by error and message pattern, the most frequent cause first.

    Examples:
        >>> for cause in by_cause(letters.open()):
        ...     print(cause.count, cause.error, cause.pattern)
        2 ValueError no room for …
    """
    groups: dict[tuple[str, str], list[Letter]] = {}
    for letter in letters:
        groups.setdefault((letter.error, pattern_of(letter.message)), []).append(letter)
    causes = [_cause(error, pattern, grouped) for (error, pattern), grouped in groups.items()]
    return sorted(causes, key=lambda cause: (-cause.count, cause.error, cause.pattern))


def _cause(error: str, pattern: str, letters: list[Letter]) -> Cause:
    times = sorted(letter.time for letter in letters if letter.time is not None)
    return Cause(
        error=error,
        pattern=pattern,
        example=letters[-1].message.partition("\n")[0],
        count=len(letters),
        attempts=sum(letter.attempts for letter in letters),
        first=times[0] if times else None,
        last=times[-1] if times else None,
        letters=tuple(letter.id for letter in letters),
    )
