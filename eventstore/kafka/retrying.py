"""What a record of a retry topic says of itself: when it is due, how often it was put off, where it comes from.

A record that was put there by a replay of dead letters says nothing, and is due at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

RETRY_PREFIX: Final = "retry_"


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt: not before `due`, the `number`-th, after `attempts` calls of the handler."""

    due: datetime
    number: int
    attempts: int
    topic: str
    partition: int
    offset: int

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Return the headers that the record has in addition to its own."""
        fields = {
            "due": self.due.isoformat(),
            "number": self.number,
            "attempts": self.attempts,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
        }
        return tuple((f"{RETRY_PREFIX}{name}", str(value).encode()) for name, value in fields.items())


def retry_of(headers: Iterable[tuple[str, bytes | None]]) -> Retry | None:
    """Read the headers of a record, None without such; ValueError if they are not what `headers` wrote."""
    fields = {name.removeprefix(RETRY_PREFIX): value for name, value in headers if name.startswith(RETRY_PREFIX)}
    if not fields:
        return None
    texts = {name: (value or b"").decode() for name, value in fields.items()}
    try:
        due = datetime.fromisoformat(texts["due"])
        number, attempts, partition, offset = (int(texts[n]) for n in ("number", "attempts", "partition", "offset"))
        retry = Retry(due, number, attempts, texts["topic"], partition, offset)
    except KeyError as missing:
        raise ValueError(f"{RETRY_PREFIX}{missing.args[0]}") from missing
    if due.tzinfo is None:
        raise ValueError(f"{RETRY_PREFIX}due {texts['due']!r}, which has no zone")
    return retry
