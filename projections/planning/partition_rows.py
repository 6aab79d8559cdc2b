"""What is known of the rows of an operator in the plan of a view over partitions.

All rows of an affected partition are cut, and none of another one. A plan is right if none of its rows is made of rows
of two partitions: every operator that combines rows does it within the columns of ``by``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import Any, Final, NamedTuple

from projections.planning.aggregates import TellApart
from projections.planning.plans import Node

EQUAL: Final = ("EqualTo", "EqualNullSafe")
_COMPARED: Final = ("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_SETS: Final = 8  # of columns that distinguish rows; joins would multiply them

Ids = frozenset[int]
Sets = tuple[Ids, ...]
_MOST_PRESENT: Final = 16  # of attributes of which one is not null


@dataclass(frozen=True)
class LocalRows:
    """The rows of an operator, each of one partition.

    ``by`` says for each column of ``by`` which attributes hold its value: one attribute of each set together, as
    ``coalesce`` has it of a full join; where there is one set, each of it alone. ``unique`` are attributes that tell
    two rows of a partition apart. ``linked`` are the columns of ``by`` that equal those of the row around a subquery.
    Of each set of ``present`` one attribute is not null. Rows of no table are ``constant``. ``exploded`` says by what a
    row is there several times, ``united`` that rows of several operators follow each other: ``parts`` are these, and
    ``nulls`` the attributes that are null in all rows.
    """

    by: tuple[Sets, ...]
    unique: Sets = ()
    linked: frozenset[int] = frozenset()
    present: Sets = ()
    constant: bool = False
    exploded: str | None = None
    united: bool = False
    parts: tuple[LocalRows, ...] = ()
    nulls: Ids = frozenset()

    @property
    def is_of_one_partition(self) -> bool:
        """Whether all of the rows are of one partition: that of the row around them."""
        return len(self.linked) == len(self.by)

    def holds(self, place: int, expression: Node) -> bool:
        """Whether an expression is the value of a column of ``by``."""
        sets = self.by[place]
        if expression.kind == "Alias" or _is_same_value(expression):
            return self.holds(place, expression.one("child"))
        if expression.is_attribute:
            return len(sets) == 1 and expression.id in sets[0]
        if expression.kind != "Coalesce" or not sets:
            return False
        parts = [self._place_of(part, sets) for part in expression.children]
        return None not in parts and set(parts) == set(range(len(sets)))

    def _place_of(self, part: Node, sets: Sets) -> int | None:
        places = (n for n, ids in enumerate(sets) if part.is_attribute and part.id in ids)
        return next(places, None)

    def hold_all(self, expressions: Sequence[Node]) -> bool:
        """Whether the value of each column of ``by`` is among some expressions."""
        return all(any(self.holds(place, e) for e in expressions) for place in range(len(self.by)))

    def distinguish(self, expressions: Sequence[Node], *, present: bool = False) -> bool:
        """Whether rows of one partition that are equal in some expressions, or only where all are ``present``, are one.

        Where each part of a union has nulls in the others' columns, rows with values there are of one part.
        """
        ids = attributes(expressions)
        if any(some <= ids for some in self.unique) or self._part_by_part(expressions):
            return True
        left = [part for part in self.parts if not part.nulls & ids] if present else []
        return len(left) == 1 and left[0].distinguish(expressions)

    def _part_by_part(self, expressions: Sequence[Node]) -> bool:
        """Whether expressions distinguish the rows of each part of a union, and rows of two parts by a null in one."""
        ids = attributes(expressions)
        different = (
            any((one.is_present(frozenset({id})) and id in other.nulls)
                or (other.is_present(frozenset({id})) and id in one.nulls) for id in ids)
            for one, other in combinations(self.parts, 2)
        )  # fmt: skip
        return bool(self.parts) and all(part.distinguish(expressions) for part in self.parts) and all(different)

    def may_be_apart(self, expressions: Sequence[Node]) -> bool:
        """Whether expressions distinguish the rows, or those of each part of a union: then only a run shows it."""
        return self.distinguish(expressions) or (
            self.united and all(part.may_be_apart(expressions) for part in self.parts)
        )

    def within(self, by: Sequence[Node]) -> TellApart:
        """The same of rows that are equal in other expressions too."""
        return lambda expressions, *, present=False: self.distinguish([*by, *expressions], present=present)

    def placed(self, output: Sequence[int], made: Sequence[int]) -> LocalRows:
        """The rows as a part of a union, which gives its attributes others by their places."""
        names: dict[int, set[int]] = {}
        for id, new in zip(output, made, strict=True):
            names.setdefault(id, set()).add(new)
        by = tuple(tuple(frozenset().union(*(names.get(i, ()) for i in ids)) for ids in sets) for sets in self.by)
        return LocalRows(
            by,
            renamed_sets(self.unique, names),
            present=renamed_sets(self.present, names),
            exploded=self.exploded,
            united=self.united,
            nulls=frozenset().union(*(names.get(i, ()) for i in self.nulls)),
        )

    def selected(self, expressions: Sequence[Node]) -> LocalRows:
        """The rows with other attributes, which are computed from these."""
        names: dict[int, set[int]] = {}
        for named in expressions:
            inner = named.bare
            if inner.is_attribute:
                names.setdefault(inner.id, set()).add(named.id)
        by = tuple(self._selected_by(place, expressions, names) for place in range(len(self.by)))
        rows = replace(
            self,
            by=by,
            parts=tuple(part.selected(expressions) for part in self.parts),
            nulls=frozenset(e.id for e in expressions if self._is_null(e.bare)),
        )
        structs = [named for named in expressions if named.bare.kind == "CreateNamedStruct"]
        whole = (frozenset({e.id}) for e in structs if self.distinguish(e.bare.children[1::2]))
        known = [frozenset({e.id}) for e in expressions if self._is_known(e.bare)]
        present = (*renamed_sets(self.present, names), *known)
        return replace(rows, present=present).with_unique([*renamed_sets(self.unique, names), *whole])

    def _is_known(self, expression: Node) -> bool:
        """Whether an expression is a record, a value, or the first of attributes of which one is not null."""
        if expression.kind in ("CreateNamedStruct", "Literal"):
            return not self._is_null(expression)
        return expression.kind == "Coalesce" and self.is_present(attributes(expression.children))

    def _is_null(self, expression: Node) -> bool:
        if expression.kind == "Cast":
            return self._is_null(expression.one("child"))
        if expression.is_attribute:
            return expression.id in self.nulls
        return expression.kind == "Literal" and expression.arguments.get("value") is None

    def _selected_by(self, place: int, expressions: Sequence[Node], names: Mapping[int, set[int]]) -> Sets:
        whole = frozenset(e.id for e in expressions if self.holds(place, e))
        if whole:
            return (whole,)
        sets = tuple(frozenset().union(*(names[i] for i in ids if i in names)) for ids in self.by[place])
        return sets if all(sets) else ()

    def narrowed(self, parts: Sequence[Node]) -> LocalRows:
        """The rows for which conditions hold: what is compared is not null, and what equals one value tells nothing."""
        held = [part for part in parts if part.kind in ("IsNotNull", "EqualTo", *_COMPARED)]
        present = attributes(child for part in held for child in part.children)
        fixed = {_fixed(part) for part in parts}
        known = replace(self, present=(*self.present, *(frozenset({id}) for id in present)))
        return known.with_unique(ids - fixed for ids in self.unique).of_parts(parts)

    def of_parts(self, conditions: Sequence[Node]) -> LocalRows:
        """What is known where conditions leave one part of a union alone."""
        left = tuple(part.narrowed(conditions) for part in self.parts if not part.is_excluded(conditions))
        if len(left) != 1:
            return replace(self, parts=left)
        (part,) = left
        rows = replace(self, parts=(), united=part.united, present=(*self.present, *part.present))
        return rows.with_unique([*self.unique, *part.unique])

    def is_excluded(self, conditions: Sequence[Node]) -> bool:
        """Whether a condition holds for none of the rows: null of what never is, or not null of what always is."""
        nulls = attributes(child for part in conditions if part.kind == "IsNull" for child in part.children)
        filled = attributes(child for part in conditions if part.kind == "IsNotNull" for child in part.children)
        return bool(filled & self.nulls) or any(some <= nulls for some in self.present)

    def is_present(self, ids: Ids) -> bool:
        """Whether some attributes are never all null."""
        return any(some <= ids for some in self.present)

    def with_unique(self, unique: Iterable[Ids]) -> LocalRows:
        """The same rows, distinguished by other attributes."""
        return replace(self, unique=tuple(dict.fromkeys(unique))[:_MOST_SETS])


def _is_same_value(expression: Node) -> bool:
    """Whether an expression is a whole number or a decimal of one scale, made wider."""
    if expression.kind != "Cast":
        return False
    made, child = (one.type for one in (expression, expression.one("child")))
    if child in _WHOLE and made in _WHOLE:
        return _WHOLE.index(child) <= _WHOLE.index(made)
    wide, narrow = _DECIMAL.fullmatch(made), _DECIMAL.fullmatch(child)
    if wide is None or narrow is None:
        return False
    return wide[2] == narrow[2] and int(wide[1]) >= int(narrow[1])


def _fixed(part: Node) -> int | None:
    """The attribute that a condition gives one value."""
    if part.kind not in EQUAL:
        return None
    sides = [part.one("left"), part.one("right")]
    ours = [side for side in sides if side.is_attribute]
    fixed = [side for side in sides if side.kind in ("Literal", "OuterReference")]
    return ours[0].id if len(ours) == len(fixed) == 1 else None


def attributes(expressions: Iterable[Node]) -> Ids:
    """The ids of those expressions that are attributes."""
    return frozenset(e.id for e in expressions if e.is_attribute)


def renamed_sets(sets: Sets, names: Mapping[int, set[int]]) -> Sets:
    """Sets of attributes under their new names, of which each may have several; those that lost one are not known."""
    found = (product(*(sorted(names.get(i, ())) for i in ids)) for ids in sets)
    return tuple(frozenset(chosen) for choices in found for chosen in islice(choices, _MOST_SETS))


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
            return tuple(one | other for one in left.present for other in right.present)[:_MOST_PRESENT]
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
