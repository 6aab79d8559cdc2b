"""Random patterns match what a plain matcher finds, over rows of few values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.declaring.predicates import field
from projections.declaring.timing.operands import previous, rows_of
from projections.declaring.timing.patterns import label
from projections.errors import InvalidDefinition
from tests.conformance import pattern_oracle
from tests.unit.projections.test_patterns import EXAMPLES, SECOND, found, is_of_rows_alone

LABELS = [
    label("l1", field("v") == 1), label("l2", field("v") == 2), label("l3", field("v") >= 1), label("l4"),
    label("up", field("v") > previous("v")),
    label("more", (field("v") > rows_of().last("v")) | rows_of().last("v").is_null()),
    label("sum", rows_of().total("v") + field("v") <= 4),
    label("few", ~(rows_of("few").count() > 1)),
    label("mean", (field("v") <= rows_of().average("v")) & (field("v") > 0)),
    label("top", rows_of("top").greatest("v") == rows_of("top").least("v")),
]  # fmt: skip


CONDITIONS = [field("v") == 2, field("v") > rows_of().first("v"), field("v").is_null(), rows_of().count("v") > 2]


def _joined(steps):
    unless = st.one_of(st.none(), st.sampled_from(CONDITIONS))
    return st.one_of(
        st.builds(lambda one, other: one.then(other), steps, steps),
        st.builds(_apart, steps, steps, unless),
        st.builds(lambda one, other: one | other, steps, steps),
        st.builds(_repeated, steps, st.integers(0, 2), st.sampled_from([None, 1, 2, 3]), st.booleans()),
    )


def _apart(one, other, unless):
    if one.shape.may_be_empty or other.shape.may_be_empty:
        return one.then(other)
    found = one.followed_by(other)
    return found if unless is None else found.not_between(unless)


def _repeated(step, least, most, greedy):
    if step.shape.may_be_empty or (most is not None and most < least):
        return step
    found = step.one_or_more() if (least, most) == (1, None) else step.zero_or_more()
    found = found if most is None else step.times(least, most)
    return found if greedy else found.reluctant()


@st.composite
def patterns(draw):
    step = draw(st.recursive(st.sampled_from(LABELS), _joined, max_leaves=5))
    step = step if not step.shape.may_be_empty else step.then(LABELS[0])
    pattern = step.within(f"{draw(st.integers(1, 6))} seconds")
    if draw(st.integers(0, 3)) == 0:
        pattern = pattern.not_followed_by(draw(st.sampled_from(CONDITIONS)))
    ways = [pattern, pattern.skip_to_next_row()]
    for name in pattern.labels:
        for skip in (pattern.skip_to_first, pattern.skip_to_last):
            try:
                ways.append(skip(name))
            except InvalidDefinition:
                continue
    return draw(st.sampled_from(ways))


PARTITIONS = st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 3))), max_size=8)


def timed(steps):
    """Rows whose times are some seconds apart."""
    at, rows = 0, []
    for seconds, value in steps:
        at += seconds * SECOND
        rows.append({"at": at, "v": value})
    return rows


@pytest.mark.kills
@given(pattern=patterns().filter(is_of_rows_alone), steps=PARTITIONS)
@settings(max_examples=20 + 10 * EXAMPLES, deadline=None)
def test_rows_of_which_nothing_is_true_may_be_left_out(pattern, steps):
    rows = timed(steps)
    assert found(pattern, rows, kept=any) == pattern_oracle.matches(pattern, rows)


@pytest.mark.kills
@given(pattern=patterns(), steps=PARTITIONS)
@settings(max_examples=40 + 10 * EXAMPLES, deadline=None)
def test_every_pattern_matches_what_a_plain_matcher_finds(pattern, steps):
    rows = timed(steps)
    assert found(pattern, rows) == pattern_oracle.matches(pattern, rows)
