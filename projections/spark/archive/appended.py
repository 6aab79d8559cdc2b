"""The record of one append to an archive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Appended:
    """One append: the topic, the offsets it spans, of which markers of transactions hold no record, and its seconds.

    ``waiting`` is how many more the topic had when the append began.
    """

    topic: str
    offsets: int
    waiting: int
    seconds: float
