"""The first look at a table: chunk by chunk of its keys, digests first, rows where digests differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Final

from cdc.comparing.rows import Key, KeyRange, Rows, ordered

# A chunk is read in a tenth of a second on either side, and its rows' digests are a megabyte where they differ.
CHUNK_ROWS: Final = 10_000
# Without an index each chunk reads the whole table: then there are few of them.
_CHUNKS_WITHOUT_INDEX: Final = 20


@dataclass
class FirstLook:
    """What the chunks had, and the keys that have to be looked at again; rows change while they are compared."""

    source_rows: int = 0
    state_rows: int = 0
    chunks: int = 0
    suspects: list[Key] = field(default_factory=list)


def look(
    source: Rows, state: Rows, *, orders: tuple[str, ...], chunk: int, on_compared: Callable[[int], None]
) -> FirstLook:
    """Compare all chunks once, both sides at the same time; ``on_compared`` gets the number of rows compared so far."""
    result = FirstLook()
    with ThreadPoolExecutor(2) as both:

        def ask(question: Callable[[Rows], Any]) -> tuple[Any, Any]:
            one, other = both.map(question, (source, state))
            return one, other

        for keys in _ranges(ask, orders, _chunk_rows(source, state, chunk)):
            ours, theirs = ask(methodcaller("digest", keys))
            result.chunks += 1
            result.source_rows += ours.rows
            result.state_rows += theirs.rows
            if ours != theirs:
                result.suspects += _suspects(*ask(methodcaller("rows", keys)))
            on_compared(max(result.source_rows, result.state_rows))
    return result


def _suspects(source: Any, state: Any) -> Iterator[Key]:
    for key in source.keys() | state.keys():
        ours, theirs = source.get(key), state.get(key)
        if ours is None or theirs is None or ours.digest != theirs.digest:
            yield key


def _chunk_rows(source: Rows, state: Rows, chunk: int) -> int:
    if source.is_indexed and state.is_indexed:
        return chunk
    return max(chunk, source.estimate // _CHUNKS_WITHOUT_INDEX)


def _ranges(ask: Callable[..., tuple[Any, Any]], orders: tuple[str, ...], rows: int) -> Iterator[KeyRange]:
    """Ranges that hold all keys; none has more than so many rows on either side."""
    lower: Key | None = None
    while True:
        ends = [key for key in ask(methodcaller("last_of", lower, rows)) if key is not None]
        upper = min(ends, key=lambda key: ordered(key, orders), default=None)
        # An order of a database that is not ours must not keep us here: one range has all the rest then.
        if upper is not None and lower is not None and ordered(upper, orders) <= ordered(lower, orders):
            upper = None
        yield KeyRange(lower, upper)
        if upper is None:
            return
        lower = upper
