"""The size of batches follows the time they take, within its bounds; a store that becomes slow gets smaller ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.errors import InvalidDefinition
from projections.logs.offsets import BatchSize

SIZE = BatchSize(records=10_000, target=2.0, least=500, most=100_000)


def settled(size, seconds_a_record, *, fixed=0.1, batches=30):
    """The size after so many full batches of a store with these costs."""
    for _ in range(batches):
        size = size.after(size.records, seconds=fixed + size.records * seconds_a_record)
    return size


@pytest.mark.parametrize("seconds_a_record", [0.002, 0.0005, 0.00005])
def test_full_batches_come_to_take_about_the_target(seconds_a_record):
    size = settled(SIZE, seconds_a_record)
    assert 1.5 <= 0.1 + size.records * seconds_a_record <= 2.6
    assert settled(size, seconds_a_record, batches=1) == size


def test_a_store_that_is_ten_times_slower_gets_smaller_batches_and_gets_larger_ones_back():
    quick = settled(SIZE, 0.0001)
    slow = settled(quick, 0.001)
    assert slow.records < quick.records / 5
    assert settled(slow, 0.0001).records > slow.records * 5


def test_a_slow_batch_shrinks_the_next_one_at_once_and_no_further_than_to_a_quarter():
    assert SIZE.after(10_000, seconds=4.0).records == 5_000
    assert SIZE.after(10_000, seconds=400.0).records == 2_500


def test_a_quick_full_batch_doubles_the_next_one_at_most():
    assert SIZE.after(10_000, seconds=0.01).records == 20_000
    assert SIZE.after(10_000, seconds=0.0).records == 20_000


def test_a_quick_batch_of_few_records_says_nothing_of_large_ones():
    assert SIZE.after(10, seconds=0.1) == SIZE


def test_a_slow_batch_of_few_records_costs_no_more_than_a_slow_large_one():
    assert SIZE.after(6_000, seconds=4.0).records == 3_000
    assert SIZE.after(300, seconds=3.0).records == 2_500


def test_a_size_near_its_target_stays():
    assert SIZE.after(10_000, seconds=2.2) == SIZE == SIZE.after(10_000, seconds=1.8)


@given(st.lists(st.tuples(st.integers(0, 200_000), st.floats(0, 1e6)), max_size=40))
def test_whatever_happens_the_size_stays_within_its_bounds(batches):
    size = SIZE
    for records, seconds in batches:
        size = size.after(records, seconds=seconds)
        assert SIZE.least <= size.records <= SIZE.most


@pytest.mark.parametrize(
    "wrong", [{"least": 0}, {"records": 400}, {"records": 200_000}, {"target": 0}, {"least": 20_000, "most": 10_000}]
)
def test_bounds_that_cross_are_refused(wrong):
    with pytest.raises(InvalidDefinition, match="a batch cannot have"):
        BatchSize(**{"records": 10_000, "least": 500, "most": 100_000} | wrong)
