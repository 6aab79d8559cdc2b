"""A plain matcher of patterns: it tries one way after the other, in the order of preference, and remembers nothing.

It shares no code with the product's `automaton`, looks at rows as dictionaries, and may take exponentially long.
"""

from __future__ import annotations

import operator
from fractions import Fraction

from projections.declaring.matching import matcher
from projections.declaring.predicates import Both, Negated
from projections.declaring.predicates import Either as Or
from projections.declaring.timing.operands import PREVIOUS, Compared, Computed, Fixed, Missing, OfRow, Taken
from projections.declaring.timing.patterns import Either, FollowedBy, Label, Repeated, Then

SYMBOLS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
           ">=": operator.ge, "+": operator.add, "-": operator.sub, "*": operator.mul}  # fmt: skip


def matches(pattern, rows, *, time="at"):
    """The matches in rows that are in order: of each the places of its rows with their labels."""
    found, start = [], 0
    while start < len(rows):
        match = _Search(pattern, rows, start, time).best()
        if match is not None:
            found.append(match)
        start = start + 1 if match is None else _next(pattern.skip, match)
    return found


def _next(skip, match):
    of_label = [row for row, name in match if name == skip.label]
    return {"past last": lambda: match[-1][0] + 1, "next row": lambda: match[0][0] + 1,
            "first": lambda: of_label[0], "last": lambda: of_label[-1]}[skip.to]()  # fmt: skip


class _Search:
    def __init__(self, pattern, rows, start, time):
        self.pattern, self.rows, self.start = pattern, rows, start
        limit = pattern.limit
        self.in_time = [limit is None or row[time] - rows[start][time] <= limit for row in rows]

    def best(self):
        for end, taken in self.ways(self.pattern.step, self.start, ()):
            later = [at for at in range(end, len(self.rows)) if self.in_time[at]]
            after = self.pattern.unfollowed_by
            if after is None or not any(self.meets(after, at, taken) for at in later):
                return list(taken)
        return None

    def ways(self, step, at, taken):
        match step:
            case Label(name, condition):
                if at < len(self.rows) and self.in_time[at] and self.meets(condition, at, taken):
                    yield at + 1, (*taken, (at, name))
            case Then(left, right):
                for middle in self.ways(left, at, taken):
                    yield from self.ways(right, *middle)
            case FollowedBy(left, right, unless):
                for middle, so_far in self.ways(left, at, taken):
                    for begin in range(middle, len(self.rows)):
                        yield from self.ways(right, begin, so_far)
                        if unless is not None and self.meets(unless, begin, so_far):
                            break
            case Either(options):
                for option in options:
                    yield from self.ways(option, at, taken)
            case Repeated():
                yield from self.repetitions(step, 0, at, taken)

    def repetitions(self, step, count, at, taken):
        if count >= step.least and not step.greedy:
            yield at, taken
        if step.most is None or count < step.most:
            for middle in self.ways(step.step, at, taken):
                yield from self.repetitions(step, count + 1, *middle)
        if count >= step.least and step.greedy:
            yield at, taken

    def meets(self, condition, at, taken):
        return condition is None or self.truth(condition, at, taken) is True

    def truth(self, condition, at, taken):
        match condition:
            case Both(left, right):
                return _least([self.truth(left, at, taken), self.truth(right, at, taken)])
            case Or(left, right):
                return _not(_least([_not(self.truth(left, at, taken)), _not(self.truth(right, at, taken))]))
            case Negated(inner):
                return _not(self.truth(inner, at, taken))
            case Compared(left, symbol, right):
                one, other = self.value(left, at, taken), self.value(right, at, taken)
                return None if one is None or other is None else SYMBOLS[symbol](one, other)
            case Missing(value):
                return self.value(value, at, taken) is None
        before = self.rows[at - 1] if at else dict.fromkeys(self.rows[at])
        return matcher(condition)("row", self.rows[at] | {PREVIOUS + c: v for c, v in before.items()})

    def value(self, term, at, taken):
        match term:
            case OfRow((column,)) if column.startswith(PREVIOUS):
                return _number(self.rows[at - 1][column.removeprefix(PREVIOUS)]) if at else None
            case OfRow((column,)):
                return _number(self.rows[at][column])
            case Fixed(value):
                return _number(value)
            case Computed(left, sign, right):
                one, other = self.value(left, at, taken), self.value(right, at, taken)
                return None if one is None or other is None else SYMBOLS[sign](one, other)
            case Taken(labels, function, column):
                return aggregate(function, self.values(labels, column, taken))

    def values(self, labels, column, taken):
        rows = [self.rows[row] for row, name in taken if not labels or name in labels]
        return [_number(True if column is None else row[column]) for row in rows]


def aggregate(function, values):
    """What a function makes of the values of some rows."""
    known = [value for value in values if value is not None]
    if function == "count":
        return len(known)
    if function in ("first", "last"):
        return (values[0] if function == "first" else values[-1]) if values else None
    if not known:
        return None
    total = sum(known)
    return {"total": total, "average": total / len(known), "least": min(known), "greatest": max(known)}[function]


def _number(value):
    if value is None or value != value:
        return None
    return value if isinstance(value, str) else Fraction(value)


def _least(truths):
    if False in truths:
        return False
    return None if None in truths else True


def _not(truth):
    return None if truth is None else not truth
