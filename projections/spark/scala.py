"""Scala's collections, as py4j hands them over."""

from __future__ import annotations

from typing import Any


def items(sequence: Any) -> list[Any]:
    """The items of a sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]
