"""Patterns over the rows of a partition, in the order of their time.

Of all matches that begin at a row, the preferred one counts: as many repetitions as possible, or as few where they are
``reluctant()``; the first of several options; the nearest row of ``followed_by``. Matches are looked for from the first
row on; after a match, from the row that the pattern's ``skip_…`` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Final, Literal, NoReturn

from projections.declaring.event_fields import paths
from projections.declaring.naming import checked_identifier
from projections.declaring.predicates import Path, Predicate, TypeTest, leaves, required
from projections.declaring.timing.operands import PREVIOUS, OfRow, Rows, Slot, Taken, terms
from projections.declaring.timing.promises import Lasting, Length, exact, positive
from projections.errors import InvalidDefinition

_MOST_STEPS: Final = 1_000  # of a pattern with its repetitions written out: more is a mistake

After = Literal["past last", "next row", "first", "last"]


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


class Step:
    """One or more rows of a pattern; put steps together, and end with ``within``."""

    @property
    def inner(self) -> tuple[Step, ...]:
        """The steps that it is made of."""
        return ()

    @property
    def shape(self) -> Shape:
        """What is known of its matches."""
        raise NotImplementedError

    @property
    def signature(self) -> str:
        """A text that changes with what it matches."""
        return f"{self}: {[f'{one.name}: {one.condition}' for one in _labels(self)]} {list(map(str, _between(self)))}"

    def then(self, following: Step) -> Step:
        """This step, and then ``following`` from the very next row on."""
        return Then(self, _step(following))

    def followed_by(self, following: Step) -> Step:
        """This step, and then ``following`` from any later row on, the nearest that leads to a match.

        The rows between are no part of the match. Raises InvalidDefinition if one of the two may be without rows.
        """
        for one in (self, _step(following)):
            if one.shape.may_be_empty:
                raise InvalidDefinition(
                    f"{one} is optional, and followed_by needs a step with a row",
                    remedy="name both cases: a.followed_by(b) | a instead of a.followed_by(b.optional())",
                )
        return FollowedBy(self, following)

    def not_between(self, condition: Predicate) -> Step:
        """No row that meets the condition lies between the last two steps, which ``followed_by`` joins."""
        raise InvalidDefinition(
            f"{self} ends with no followed_by, between whose steps rows may lie",
            remedy="write a.followed_by(b).not_between(condition)",
        )

    def __or__(self, other: Step) -> Step:
        return Either((*_options(self), *_options(_step(other))))

    def times(self, least: int, most: int | None = None) -> Repeated:
        """The step ``least`` times, or up to ``most`` times, each from the row after the last one on."""
        return _repeated(self, least, least if most is None else most)

    def optional(self) -> Repeated:
        """The step, or no row."""
        return _repeated(self, 0, 1)

    def zero_or_more(self) -> Repeated:
        """The step as often as it comes, or no row."""
        return _repeated(self, 0, None)

    def one_or_more(self) -> Repeated:
        """The step as often as it comes, at least once."""
        return _repeated(self, 1, None)

    def within(self, length: Lasting) -> Pattern:
        """The pattern whose last row comes at most ``length`` after its first, to the microsecond.

        The length is positive, of days or less. Raises InvalidDefinition.
        """
        positive(length, what="within")
        return Pattern(self, exact(length, what="within"))

    def skip_to_next_row(self) -> Pattern:
        """The pattern without a bound, see `Pattern.skip_to_next_row`."""
        return Pattern(self).skip_to_next_row()

    def skip_to_first(self, label: str | Label) -> Pattern:
        """The pattern without a bound, see `Pattern.skip_to_first`."""
        return Pattern(self).skip_to_first(label)

    def skip_to_last(self, label: str | Label) -> Pattern:
        """The pattern without a bound, see `Pattern.skip_to_last`."""
        return Pattern(self).skip_to_last(label)


@dataclass(frozen=True, eq=False)
class Label(Step, Rows):
    """One row that meets a condition; see `label`."""

    name: str
    condition: Predicate | None

    @property
    def names(self) -> tuple[str, ...]:
        """Itself, of whose rows a measure or condition may ask."""
        return (self.name,)

    @property
    def shape(self) -> Shape:
        """One row."""
        return of_label(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Then(Step):
    """One step after the other."""

    left: Step
    right: Step

    @property
    def inner(self) -> tuple[Step, ...]:
        """Both."""
        return self.left, self.right

    @cached_property
    def shape(self) -> Shape:
        """The rows of both."""
        return self.left.shape.then(self.right.shape)

    def __str__(self) -> str:
        return f"{self.left} {self.right}"


@dataclass(frozen=True, eq=False)
class FollowedBy(Step):
    """One step after the other, and any rows between that do not meet ``unless``."""

    left: Step
    right: Step
    unless: Predicate | None = None

    def not_between(self, condition: Predicate) -> Step:
        """The same, without rows that meet the condition in between."""
        if self.unless is not None:
            raise InvalidDefinition(
                f"{self} has a condition for the rows between already", remedy="join the two conditions by |"
            )
        return replace(self, unless=_of_rows(condition, "rows between"))

    @property
    def inner(self) -> tuple[Step, ...]:
        """Both."""
        return self.left, self.right

    @cached_property
    def shape(self) -> Shape:
        """The rows of both, with any number between."""
        return self.left.shape.then(self.right.shape, apart=True)

    def __str__(self) -> str:
        return f"{self.left} … {self.right}"


@dataclass(frozen=True, eq=False)
class Either(Step):
    """One of several steps, the earlier ones preferred."""

    options: tuple[Step, ...]

    @property
    def inner(self) -> tuple[Step, ...]:
        """All of them."""
        return self.options

    @cached_property
    def shape(self) -> Shape:
        """The rows of any."""
        return either([one.shape for one in self.options])

    def __str__(self) -> str:
        return f"({' | '.join(map(str, self.options))})"


@dataclass(frozen=True, eq=False)
class Repeated(Step):
    """A step several times, as often as possible or as seldom."""

    step: Step
    least: int
    most: int | None
    greedy: bool = True

    def reluctant(self) -> Repeated:
        """The same, with as few repetitions as lead to a match instead of as many."""
        return replace(self, greedy=False)

    @property
    def inner(self) -> tuple[Step, ...]:
        """What is repeated."""
        return (self.step,)

    @cached_property
    def shape(self) -> Shape:
        """Its rows several times."""
        return self.step.shape.repeated(self.least, self.most)

    def __str__(self) -> str:
        known = {(0, 1): "?", (0, None): "*", (1, None): "+", (self.least, self.least): f"{{{self.least}}}"}
        sign = known.get((self.least, self.most), f"{{{self.least},{self.most}}}")
        inner = str(self.step) if isinstance(self.step, Label | Either) else f"({self.step})"
        return f"{inner}{sign}{'' if self.greedy else '?'}"


@dataclass(frozen=True)
class Skip:
    """Where the search goes on after a match; ``label`` counts for the first or last row of one."""

    to: After = "past last"
    label: str = ""

    def __str__(self) -> str:
        return f"{self.to} row of {self.label}" if self.label else self.to


@dataclass(frozen=True, eq=False)
class Pattern:
    """A step, with conditions on the whole match. ``limit`` is in microseconds.

    Raises InvalidDefinition for a pattern that cannot match.

    Examples:
        >>> card_test = small.times(3).followed_by(large).within("10 minutes")
    """

    step: Step
    limit: int | None = None
    unfollowed_by: Predicate | None = None
    skip: Skip = Skip()

    def __post_init__(self) -> None:
        self._require_bounds()
        for condition in self.conditions:
            for one in terms(condition):
                if isinstance(one, Taken):
                    self.require_labels(one.labels, f"condition {condition}")
        if self.skip.label:
            self._require_progress()

    def __getattr__(self, name: str) -> Any:
        """Nothing: a step that would go on after `within` is refused by name."""
        if not name.startswith("_") and hasattr(Step, name):
            raise self._ended(name)
        raise AttributeError(name)

    def __or__(self, other: object) -> NoReturn:
        raise self._ended("|")

    def _ended(self, name: str) -> InvalidDefinition:
        return InvalidDefinition(
            f"the pattern {self.step} ends with within or skip, and {name} would go on",
            remedy="call within(…) and skip_…() last: they are about the whole match",
        )

    def not_followed_by(self, condition: Predicate) -> Pattern:
        """Exclude matches that a row with this condition follows within the time of ``within``, from the first row on.

        A match counts until such a row comes. Raises InvalidDefinition.
        """
        if self.unfollowed_by is not None:
            raise InvalidDefinition(
                f"{self} has a condition for the rows after it already", remedy="join the two conditions by |"
            )
        return replace(self, unfollowed_by=_of_rows(condition, "rows after the match"))

    def skip_to_next_row(self) -> Pattern:
        """Look for the next match from the row after this one's first row: matches may overlap."""
        return replace(self, skip=Skip("next row"))

    def skip_to_first(self, label: str | Label) -> Pattern:
        """Look for the next match from the first row of a label. Raises InvalidDefinition."""
        return replace(self, skip=Skip("first", _name(label)))

    def skip_to_last(self, label: str | Label) -> Pattern:
        """Look for the next match from the last row of a label. Raises InvalidDefinition."""
        return replace(self, skip=Skip("last", _name(label)))

    @cached_property
    def labels(self) -> dict[str, Label]:
        """The labels by name, in the order in which they are written. Raises InvalidDefinition for a repeated name."""
        by_name: dict[str, Label] = {}
        for one in _labels(self.step):
            if by_name.setdefault(one.name, one) is not one:
                raise InvalidDefinition(
                    f"two labels are named {one.name!r}", remedy="give each another name, or use one of them twice"
                )
        return by_name

    @cached_property
    def conditions(self) -> list[Predicate]:
        """All its conditions."""
        own = [one.condition for one in self.labels.values()]
        return [one for one in (*own, *_between(self.step), self.unfollowed_by) if one is not None]

    @cached_property
    def slots(self) -> list[Slot]:
        """The values of earlier rows that its conditions need, each once."""
        asked = (one for condition in self.conditions for one in terms(condition))
        return list(dict.fromkeys(one.slot for one in asked if isinstance(one, Taken)))

    @property
    def span(self) -> int | None:
        """How many microseconds after its first row a match looks at rows, None without a limit or for earlier rows."""
        looks_back = any(path[0].startswith(PREVIOUS) for one in self.conditions for path in _paths(one))
        return None if looks_back or self.skip.to != "next row" else self.limit

    def require_labels(self, names: tuple[str, ...], what: str) -> None:
        """Raise InvalidDefinition for a label that it does not have."""
        for name in names:
            if name not in self.labels:
                raise InvalidDefinition(
                    f"{what} names label {name!r}, which is not in the pattern {self.step}",
                    remedy=f"its labels are: {', '.join(self.labels)}",
                )

    def __str__(self) -> str:
        parts = [str(self.step)]
        parts += [] if self.limit is None else [f"within {Length(self.limit)}"]
        parts += [] if self.unfollowed_by is None else [f"not followed by {self.unfollowed_by}"]
        return ", ".join(parts)

    @property
    def signature(self) -> str:
        """A text that changes with what it matches."""
        return f"{self}; {self.step.signature}; skip to {self.skip}"

    def _require_bounds(self) -> None:
        if self.step.shape.may_be_empty:
            raise InvalidDefinition(
                f"{self} may match no row at all", remedy="let one step be certain: one_or_more(), or no optional()"
            )
        if self.limit is None and (self.step.shape.unbounded or self.unfollowed_by is not None):
            raise InvalidDefinition(
                f"{self} may wait for any number of rows",
                remedy="say first how long a match may last: .within('10 minutes')",
            )

    def _require_progress(self) -> None:
        self.require_labels((self.skip.label,), "skip")
        fewest = self.step.shape.fewest.get(self.skip.label, 0)
        if fewest == 0:
            raise InvalidDefinition(
                f"skip to {self.skip}, which a match of {self.step} may lack",
                remedy="name a label that each match has, or use skip_to_next_row()",
            )
        if self.skip.label in self.step.shape.first and not (self.skip.to == "last" and fewest > 1):
            raise InvalidDefinition(
                f"skip to {self.skip}, which may be the first row of the match: the search would not move on",
                remedy="name a label that begins no match, or use skip_to_next_row()",
            )


def label(name: str, condition: Predicate | None = None) -> Label:
    """Declare a step of one row that meets a condition, or of any row. Results name the rows it took by its name.

    Raises InvalidDefinition for a wrong name.

    Returns:
        A step. `then`, `followed_by`, `not_between`, `times`, `optional`, `zero_or_more` and `one_or_more` make a
        pattern of steps, and `within`, `not_followed_by` and `skip_to_next_row` limit it.

    Examples:
        >>> small, large = label("small", field("amount") < 10), label("large", field("amount") > 500)
    """
    checked_identifier(name, what="label")
    return Label(name, None if condition is None else _of_rows(condition, f"label {name}"))


def as_pattern(written: Step | Pattern) -> Pattern:
    """A pattern of a step that needs no bound; InvalidDefinition."""
    return written if isinstance(written, Pattern) else Pattern(_step(written))


def _repeated(step: Step, least: int, most: int | None) -> Repeated:
    if not _are_numbers_of_times(least, most):
        raise InvalidDefinition(
            f"{step} cannot be repeated from {least!r} to {most!r} times",
            remedy="give a whole number of one or more, or two of which the second is not less than the first",
        )
    if step.shape.may_be_empty:
        raise InvalidDefinition(
            f"a repetition of {step}, which may be without rows",
            remedy="repeat what has a row, and leave the whole out: a.zero_or_more() instead of a.optional().times(…)",
        )
    repeated = Repeated(step, least, most)
    if repeated.shape.size > _MOST_STEPS:
        raise InvalidDefinition(
            f"{repeated} has {repeated.shape.size} steps",
            remedy=f"a pattern has at most {_MOST_STEPS}: count rows in a view of its own",
        )
    return repeated


def _are_numbers_of_times(least: object, most: object) -> bool:
    if type(least) is not int or least < 0:  # True is an int, too
        return False
    return most is None or (type(most) is int and most >= max(least, 1))


def _of_rows(condition: Predicate, place: str) -> Predicate:
    if any(isinstance(part, TypeTest) for part in leaves(required(condition))):
        raise InvalidDefinition(
            "rows have no event type", remedy="compare a column that an event sets, instead of of_type(…)", place=place
        )
    return condition


def _step(value: object) -> Step:
    if isinstance(value, Step):
        return value
    raise InvalidDefinition(
        f"{value} is no step of a pattern", remedy="name a condition: label('name', condition). Call within(…) last"
    )


def _options(step: Step) -> tuple[Step, ...]:
    return step.options if isinstance(step, Either) else (step,)


def _labels(step: Step) -> Iterator[Label]:
    if isinstance(step, Label):
        yield step
    for one in step.inner:
        yield from _labels(one)


def _between(step: Step) -> Iterator[Predicate]:
    if isinstance(step, FollowedBy) and step.unless is not None:
        yield step.unless
    for one in step.inner:
        yield from _between(one)


def _paths(condition: Predicate) -> list[Path]:
    plain = [path for leaf in leaves(condition) for path in paths(leaf)]
    return [*plain, *(one.path for one in terms(condition) if isinstance(one, OfRow))]


def _name(label: str | Label) -> str:
    return label.name if isinstance(label, Label) else label
