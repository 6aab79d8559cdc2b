"""What is known of the rows of a join inside a partition: where the columns of ``by`` are, what distinguishes rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from projections.planning.partition_rows import EQUAL, Ids, LocalRows, attributes
from projections.planning.plans import Node

_MOST_SETS: Final = 16  # of attributes of which one is not null


class Side(NamedTuple):
    """One side of a join: what is known of its rows, and the ids of their attributes."""

    rows: LocalRows
    ids: Ids

    @staticmethod
    def of(rows: LocalRows, plan: Node) -> Side:
        """The side that a plan is."""
        return Side(rows, frozenset(a.id for a in plan.output))

    def has(self, expression: Node) -> bool:
        """Whether an expression is over attributes of this side alone."""
        return all(id in self.ids for id in expression.references)


def joined(how: str, one: Side, other: Side, parts: Sequence[Node]) -> LocalRows:
    """What is known of the rows that two sides make, joined by the parts of a condition."""
    left, right = one.rows, other.rows
    if how in ("LEFT SEMI", "LEFT ANTI"):
        return left
    by = tuple(_joined_by(how, ours, theirs) for ours, theirs in zip(left.by, right.by, strict=True))
    inner = how in ("INNER", "CROSS")
    rows = LocalRows(
        by,
        linked=left.linked | right.linked if inner else left.linked & right.linked,
        present=_joined_present(how, left, right),
        constant=left.constant and right.constant,
        exploded=left.exploded or right.exploded,
        united=left.united or right.united,
    ).with_unique(_joined_unique(how, one, other, parts))
    return rows.narrowed(parts) if inner else rows


def _joined_by(how: str, left: tuple[Ids, ...], right: tuple[Ids, ...]) -> tuple[Ids, ...]:
    if not left or not right:
        return left or right  # one of them has rows of no partition
    match how:
        case "LEFT OUTER":
            return left
        case "RIGHT OUTER":
            return right
        case "FULL OUTER":
            return (*left, *right)
    whole = [ids for sets in (left, right) if len(sets) == 1 for ids in sets]
    return (frozenset().union(*whole),) if whole else left


def _joined_present(how: str, left: LocalRows, right: LocalRows) -> tuple[Ids, ...]:
    match how:
        case "LEFT OUTER":
            return left.present
        case "RIGHT OUTER":
            return right.present
        case "FULL OUTER":
            return tuple(one | other for one in left.present for other in right.present)[:_MOST_SETS]
    return (*left.present, *right.present)


def _joined_unique(how: str, one: Side, other: Side, parts: Sequence[Node]) -> list[Ids]:
    left, right = one.rows, other.rows
    if how == "FULL OUTER" and not _meet_wherever_both_are(left, right, parts):
        # A row that meets none of the other side has nulls in its place: on one side, no row may have nulls only.
        present = (*left.present, *right.present)
        sets = [(a | b, left.is_present(a) or right.is_present(b)) for a in left.unique for b in right.unique]
        return [ids | some for ids, known in sets for some in ([frozenset()] if known else present)]
    pairs = _compared(one, other, parts)
    ours, theirs = (attributes(pair[place] for pair in pairs) for place in (0, 1))
    # What equals something of the other side is known with that side's row.
    unique = [a | (b - theirs) for a in left.unique for b in right.unique if how in ("INNER", "CROSS", "LEFT OUTER")]
    unique += [(a - ours) | b for a in left.unique for b in right.unique if how in ("INNER", "CROSS", "RIGHT OUTER")]
    return sorted(unique, key=len) or [a | b for a in left.unique for b in right.unique]


def _compared(one: Side, other: Side, parts: Sequence[Node]) -> list[tuple[Any, Any]]:
    """What is equal in rows that meet: an expression of one side, and one of the other."""
    equal = [(part.one("left"), part.one("right")) for part in parts if part.kind in EQUAL]
    turned = [*equal, *((b, a) for a, b in equal)]
    return [(a, b) for a, b in turned if one.has(a) and other.has(b)]


def _meet_wherever_both_are(left: LocalRows, right: LocalRows, parts: Sequence[Node]) -> bool:
    """Whether all rows of a partition meet, that of null too: only its columns are compared."""
    places = range(len(left.by))
    return all(any(equates(part, left, right, place) for place in places) for part in parts) and all(
        part.kind == "EqualNullSafe"
        or all(rows.is_present(attributes([part.one("left"), part.one("right")])) for rows in (left, right))
        for part in parts
    )


def equates(part: Node, left: LocalRows, right: LocalRows, place: int) -> bool:
    """Whether a condition says that the column of ``by`` at a place is equal on both sides."""
    if part.kind not in EQUAL:
        return False
    one, other = part.one("left"), part.one("right")
    return (left.holds(place, one) and right.holds(place, other)) or (
        left.holds(place, other) and right.holds(place, one)
    )
