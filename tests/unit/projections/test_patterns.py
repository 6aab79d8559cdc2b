"""Patterns: which rows they match, held against a plain matcher; and which of them are refused."""

from __future__ import annotations

import os
from decimal import Decimal

import pytest

from projections import Table, match_pattern, view
from projections.declaring.matching import matcher
from projections.declaring.predicates import field, of_type
from projections.declaring.timing import automaton
from projections.declaring.timing.automaton import Automaton
from projections.declaring.timing.deciding import Partition
from projections.declaring.timing.operands import PREVIOUS, is_plain, previous, rows_of
from projections.declaring.timing.patterns import Pattern, as_pattern, label
from projections.errors import InvalidPredicate, PatternTooWide
from tests.conformance import pattern_oracle
from tests.errors import refused
from tests.rows import each_row

EXAMPLES = int(os.environ.get("FACTFOLD_EXAMPLES", "0"))
SECOND = 1_000_000
a, b, c = (label(name, field("kind") == name) for name in "abc")
any_row = label("any_row")


def rows_from(text, *, times=None):
    """A row for each letter, a second apart."""
    moments = times or range(len(text))
    return [{"at": at * SECOND, "kind": kind} for at, kind in zip(moments, text, strict=True)]


def found(pattern, rows, *, kept=lambda decided: True):
    """What the automaton finds in rows, of which it is given those that are ``kept``."""
    pattern = as_pattern(pattern)
    machine = Automaton(pattern)
    before = [dict.fromkeys(rows[0]), *rows] if rows else []
    whole = [row | {PREVIOUS + c: v for c, v in old.items()} for row, old in zip(rows, before, strict=False)]
    decided = [[matcher(part)("row", row) for part in machine.before] for row in whole]
    places = [at for at, truths in enumerate(decided) if kept(truths)]
    columns = list(whole[0]) if whole else []
    partition = Partition(
        places,
        [rows[at]["at"] for at in places],
        list(zip(*(decided[at] for at in places), strict=True)) or [[]] * len(machine.before),
        {column: [whole[at][column] for at in places] for column in columns},
    )
    return [
        [(places[row], name) for row, name in zip(match.rows, match.labels, strict=True)]
        for match in machine.matches(partition)
    ]


def is_of_rows_alone(pattern):
    return all(one.condition is not None for one in pattern.labels.values()) and all(map(is_plain, pattern.conditions))


def in_words(matches):
    """Matches as their labels and the places of their rows: a0 b2."""
    return [" ".join(f"{name}{row}" for row, name in match) for match in matches]


TABLE = {
    "the very next row": (a.then(b), "aab xab", ["a1 b2", "a5 b6"]),
    "no row between": (a.then(b).then(a.optional()), "axb abxa", ["a4 b5"]),
    "rows between": (a.followed_by(b).within("1 day"), "axxb", ["a0 b3"]),
    "the nearest that leads to a match": (a.followed_by(b.then(c)).within("1 day"), "abxbc", ["a0 b3 c4"]),
    "a greedy head takes all, and no run within it": (a.one_or_more().then(b).within("1 day"), "aaab", ["a0 a1 a2 b3"]),
    "a greedy head gives back what the rest needs": (
        (a | b).one_or_more().then(b).within("1 day"), "abb", ["a0 b1 b2"]),
    "a number of rows at the end waits for no other row": (a.then(b.times(2)), "abb", ["a0 b1 b2"]),
    "a range takes the most": (a.times(1, 3), "aaaa", ["a0 a1 a2", "a3"]),
    "a reluctant range takes the least": (a.times(1, 3).reluctant(), "aa", ["a0", "a1"]),
    "reluctant rows end at the first that leads on": (
        a.then(any_row.zero_or_more().reluctant()).then(b).within("1 day"), "axbxb", ["a0 any_row1 b2"]),
    "greedy rows end at the last": (
        a.then(any_row.zero_or_more()).then(b).within("1 day"), "axbxb", ["a0 any_row1 any_row2 any_row3 b4"]),
    "an optional row": (a.then(b.optional()).then(c), "ac abc", ["a0 c1", "a3 b4 c5"]),
    "an optional row, reluctantly": (a.then(b.optional().reluctant()), "ab", ["a0"]),
    "the first option": ((a.then(b) | a), "aba", ["a0 b1", "a2"]),
    "the first option, though another is longer": ((a | a.then(b)), "ab", ["a0"]),
    "a group, again and again": (a.then(b).one_or_more().within("1 day"), "ababxab", ["a0 b1 a2 b3", "a5 b6"]),
    "a group with an optional row": (
        a.then(b.optional()).one_or_more().then(c).within("1 day"), "aabac", ["a0 a1 b2 a3 c4"]),
    "a boundary that is met": (a.followed_by(b).within("3 seconds"), "axxb", ["a0 b3"]),
    "a boundary that is passed": (a.followed_by(b).within("2999999 microseconds"), "axxb", []),
    "skip goes on behind a match that was too late": (a.followed_by(b).within("2 seconds"), "axxab", ["a3 b4"]),
    "a start within one that was too late": (a.then(a).then(b).within("2 seconds"), "aaab", ["a1 a2 b3"]),
    "nothing of a kind between": (a.followed_by(b).not_between(field("kind") == "x").within("1 day"), "axb acb",
                                  ["a4 b6"]),
    "absence": (a.within("2 seconds").not_followed_by(field("kind") == "b"), "axb axxb a", ["a4", "a9"]),
    "absence, whose last moment counts": (
        a.within("1 second").not_followed_by(field("kind") == "b"), "ab", []),
    "overlapping matches": (a.then(b).then(a).skip_to_next_row(), "ababa", ["a0 b1 a2", "a2 b3 a4"]),
    "matches one behind the other": (a.then(b).then(a), "ababa", ["a0 b1 a2"]),
    "from the first row of a label on": (a.then(b.times(2)).then(c).skip_to_first("b"), "abbc", ["a0 b1 b2 c3"]),
    "from the last row of a label on": (a.times(2).skip_to_last(a), "aaa", ["a0 a1", "a1 a2"]),
    "no row": (a, "", []),
}  # fmt: skip


@each_row("case", TABLE)
def test_a_pattern_matches(case):
    pattern, text, expected = TABLE[case]
    rows = rows_from(text)
    assert in_words(found(pattern, rows)) == expected
    assert in_words(pattern_oracle.matches(as_pattern(pattern), rows)) == expected
    if is_of_rows_alone(as_pattern(pattern)):
        assert in_words(found(pattern, rows, kept=any)) == expected


def test_rows_of_one_moment_are_in_time():
    assert in_words(found(a.followed_by(b).within("1 microsecond"), rows_from("ab", times=[5, 5]))) == ["a0 b1"]


def prices(*values):
    return [{"at": at * SECOND, "price": price} for at, price in enumerate(values)]


start = label("start")
down = label("down", field("price") < previous("price"))
up = label("up", field("price") > previous("price"))
V = start.then(down.one_or_more()).then(up.one_or_more()).within("1 day")


def test_a_price_that_falls_and_rises():
    assert in_words(found(V, prices(9, 7, 5, 6, 8, 8, 3, 4))) == ["start0 down1 down2 up3 up4", "start5 down6 up7"]


SEES = {
    "the row taken last": (field("price") > rows_of().last("price"), [1, 2, 3, 2], ["x0 y1 y2", "x3"]),
    "the first row": (field("price") == rows_of("x").first("price"), [5, 5, 6, 5], ["x0 y1", "x2", "x3"]),
    "a total": (rows_of("x", "y").total("price") + field("price") <= 10, [4, 3, 3, 1], ["x0 y1 y2", "x3"]),
    "an average": (field("price") > 2 * rows_of("x").average("price"), [1, 3, 2], ["x0 y1", "x2"]),
    "a number of rows": (rows_of("y").count() < 2, [1, 1, 1, 1], ["x0 y1 y2", "x3"]),
    "the greatest so far": (field("price") > rows_of().greatest("price"), [1, 3, 2, 4], ["x0 y1", "x2 y3"]),
    "the least so far": (field("price") < rows_of().least("price"), [3, 1, 2, 1], ["x0 y1", "x2 y3"]),
    "a value that is not there yet": (rows_of("y").last("price").is_null(), [1, 1, 1], ["x0 y1", "x2"]),
    "a difference": (field("price") - rows_of().last("price") == 1, [1, 2, 3, 3], ["x0 y1 y2", "x3"]),
    "the row and another": ((field("price") > 1) & (field("price") != rows_of("x").last("price")), [1, 2, 1, 1],
                            ["x0 y1", "x2", "x3"]),
}  # fmt: skip
x = label("x")


@each_row("case", SEES)
def test_a_condition_sees_the_rows_before(case):
    condition, values, expected = SEES[case]
    pattern = x.then(label("y", condition).zero_or_more()).within("1 day")
    assert in_words(found(pattern, prices(*values))) == expected
    assert in_words(pattern_oracle.matches(pattern, prices(*values))) == expected


def test_a_sum_of_decimals_is_exact():
    pattern = x.times(2).then(label("y", rows_of("x").total("price") - Decimal(1) == field("price")))
    large, total = Decimal("12345678901234567890123456789012345678"), Decimal("12345678901234567890123456789012345679")
    assert in_words(found(pattern, prices(large, Decimal(2), total))) == ["x0 x1 y2"]


def test_a_pattern_that_backtracking_takes_exponentially_long_for_is_matched():
    nested = a.then(a.optional()).zero_or_more().then(a.then(a.optional()).zero_or_more()).then(b).within("1 day")
    assert found(nested, rows_from("a" * 300)) == []


def test_conditions_that_see_too_many_different_values_end_with_an_error(monkeypatch):
    monkeypatch.setattr(automaton, "MOST_THREADS", 50)
    other = label("other", rows_of("any_row").total("price") != 1)
    pattern = (any_row | other).zero_or_more().then(b).within("1 day")
    rows = [{"at": at, "kind": "a", "price": 2**at} for at in range(20)]
    with pytest.raises(PatternTooWide, match="any_row"):
        found(pattern, rows)


REFUSED = {
    "rows without end": (lambda: as_pattern(a.one_or_more()), "a+ may wait for any number of rows"),
    "rows between without end": (lambda: a.followed_by(b).skip_to_next_row(), "any number of rows"),
    "absence without end": (lambda: Pattern(a).not_followed_by(field("kind") == "b"), "any number of rows"),
    "no row": (lambda: a.optional().within("1 day"), "may match no row"),
    "a repetition of no row": (lambda: a.optional().one_or_more(), "may be without rows"),
    "no row after rows between": (lambda: a.followed_by(b.optional()), "b? is optional, and followed_by needs"),
    "no row before rows between": (lambda: a.zero_or_more().followed_by(b), "a* is optional, and followed_by needs"),
    "fewer than no times": (lambda: a.times(-1), "-1 to -1 times"),
    "no times": (lambda: a.times(0), "0 to 0 times"),
    "more and then fewer times": (lambda: a.times(3, 2), "3 to 2 times"),
    "a part of a time": (lambda: a.times(1.5), "1.5 to 1.5 times"),
    "a text for a number": (lambda: a.times("3"), "'3' to '3' times"),
    "a truth for a number": (lambda: a.times(1, True), "1 to True times"),
    "too many times": (lambda: a.times(100).times(100), "10000 steps"),
    "one name for two labels": (lambda: as_pattern(a.then(label("a"))), "two labels are named 'a'"),
    "a label's name": (lambda: label("a b"), "'a b'"),
    "a condition on a label that is not there": (
        lambda: as_pattern(a.then(label("y", rows_of("z").count() > 1))), "names label 'z'"),
    "a skip to a label that is not there": (lambda: a.then(b).skip_to_first("z"), "names label 'z'"),
    "a skip to where it began": (lambda: a.then(b).skip_to_first("a"), "may be the first row of the match"),
    "a skip to a last row that may be the first": (
        lambda: a.one_or_more().within("1 day").skip_to_last("a"), "may be the first row"),
    "a skip to a label that may be missing": (
        lambda: a.then(b.optional()).skip_to_last("b"), "which a match of a b? may lack"),
    "negation between steps that follow at once": (lambda: a.then(b).not_between(field("x") == 1), "no followed_by"),
    "two negations": (
        lambda: a.followed_by(b).not_between(field("x") == 1).not_between(field("y") == 1), "already"),
    "no time": (lambda: a.then(b).within("0 seconds"), "not positive"),
    "a negative time": (lambda: a.then(b).within("-1 seconds"), "not positive"),
    "months": (lambda: a.then(b).within("1 month"), "of months"),
    "what is no step": (lambda: a.then(field("x") == 1), "x == 1 is no step of a pattern"),
    "a pattern within a pattern": (lambda: a.then(b.within("1 hour")), "b, within 1 hour is no step of a pattern"),
    "a step after a bound": (lambda: a.then(b).within("1 hour").then(c), "within or skip, and then would go on"),
    "an option after a bound": (lambda: a.within("1 hour") | b, "within or skip, and | would go on"),
    "a repeated bound": (lambda: a.then(b).skip_to_next_row().within("1 hour"), "and within would go on"),
    "a type of event": (lambda: label("typed", ~of_type_of_an_event()), "no event type"),
    "a value alone": (lambda: label("alone", rows_of().count()), "is not a predicate"),
    "null": (lambda: rows_of().count() == None, "null is compared"),  # noqa: E711
    "a part of a column": (lambda: rows_of().last("address.city"), "a part of a column"),
}  # fmt: skip


def of_type_of_an_event():
    from eventstore import Aggregate, event

    class Card(Aggregate):
        @event
        class Used:
            amount: int

    return of_type(Card.Used)


@each_row("case", REFUSED)
def test_a_pattern_that_cannot_work_is_refused_with_a_remedy(case):
    refused(*REFUSED[case])


def view_of(pattern, measures=None):
    import sqlalchemy as sa

    table = sa.Table(
        "payments", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("kind", sa.Text)
    )
    tables = {"payments": Table.from_changelog(table, topic="payments")}

    @view(by="kind", key="id", tables=tables)
    def matched(payments):
        return match_pattern(payments, pattern, by="kind", time="at", key="id", measures=measures)

    return matched


def test_a_view_is_another_one_when_its_pattern_changes():
    low, high = (label("x", field("price") > least) for least in (1, 2))
    told = [view_of(one).signature() for one in (low.times(2), low.times(3), high.times(2), low.times(2))]
    assert len(set(told)) == 3
    assert told[0] == told[3]


def test_a_view_is_another_one_when_its_measures_change():
    first, last = ({"x": rows_of().first("id")}, {"x": rows_of().last("id")})
    told = [view_of(a.times(2), measures).signature() for measures in (first, last, dict(first))]
    assert told[0] == told[2] != told[1]


def test_only_patterns_have_conditions_on_other_rows():
    with pytest.raises(InvalidPredicate, match="looks at other rows"):
        view_of(a).tables["payments"].where(field("id") > rows_of().last("id"))
