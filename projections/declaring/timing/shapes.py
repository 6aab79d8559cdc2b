"""What is known of a step of a pattern before it meets a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce


@dataclass(frozen=True)
class Shape:
    """What all matches of a step have in common.

    ``first`` are the labels that its first row may have, ``fewest`` says how many rows of a label a match has at least,
    ``size`` how many labels it has with its repetitions written out.
    """

    may_be_empty: bool
    unbounded: bool
    first: frozenset[str]
    fewest: Mapping[str, int]
    size: int

    def then(self, other: Shape, *, apart: bool = False) -> Shape:
        """One step after the other; ``apart`` if any rows may lie between."""
        return Shape(
            self.may_be_empty and other.may_be_empty,
            apart or self.unbounded or other.unbounded,
            self.first | (other.first if self.may_be_empty else frozenset()),
            Counter(self.fewest) + Counter(other.fewest),
            self.size + other.size,
        )

    def repeated(self, least: int, most: int | None) -> Shape:
        """The step ``least`` to ``most`` times."""
        return replace(
            self,
            may_be_empty=self.may_be_empty or least == 0,
            unbounded=self.unbounded or most is None,
            fewest={name: least * count for name, count in self.fewest.items()},
            size=self.size * (least + 1 if most is None else most),
        )


def of_label(name: str) -> Shape:
    """One row of a label."""
    return Shape(False, False, frozenset({name}), {name: 1}, 1)


def either(options: Sequence[Shape]) -> Shape:
    """One of several steps."""
    fewest: Counter[str] = reduce(
        lambda common, one: common & Counter(one.fewest), options[1:], Counter(options[0].fewest)
    )
    return Shape(
        any(one.may_be_empty for one in options),
        any(one.unbounded for one in options),
        frozenset().union(*(one.first for one in options)),
        fewest,
        sum(one.size for one in options),
    )
