"""Who stood still for longer than a compacted topic keeps deletions is told so, and nobody else."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from projections.errors import OffsetsLost
from projections.lifecycle.building import BuildState, _has_waited
from projections.logs.ranges import require_deletions


class Compacted:
    """A log of a topic that has lost deletions before offset 50, and of one that is not compacted."""

    def deletions_complete_from(self, topics):
        assert list(topics) == ["orders", "marks"]
        return {"orders": {0: 50, 1: 50}}


def required(at, end, *, other=50):
    progress = {"orders": {0: at, 1: other}, "marks": {0: 1}}
    require_deletions(Compacted(), progress, {"orders": {0: end, 1: 90}, "marks": {0: 9}}, topics=["orders", "marks"])


@pytest.mark.parametrize(("at", "end"), [(10, 60), (49, 50), (49, 60), (1, 50)])
def test_a_run_with_records_before_it_that_are_older_than_deletions_are_kept_is_refused(at, end):
    with pytest.raises(OffsetsLost, match="older than the topic's deletions") as caught:
        required(at, end)
    assert caught.value.place == "topic orders, partition 0"


@pytest.mark.parametrize(("at", "end"), [(50, 60), (60, 60), (10, 10), (0, 60), (49, 49)])
def test_one_that_has_read_all_there_is_or_nothing_yet_or_is_near_enough_is_not(at, end):
    required(at, end)


def test_every_partition_is_looked_at():
    with pytest.raises(OffsetsLost, match="partition 1"):
        required(50, 60, other=49)


@pytest.mark.parametrize(
    ("days", "first", "kept", "anew"), [(3, 5, 2, True), (1, 5, 2, False), (3, 9, 2, False), (3, 5, None, False)]
)
def test_chunks_are_not_merged_behind_others_that_were_read_before_deletions_went(days, first, kept, anew):
    spans = {} if kept is None else {"orders": timedelta(days=kept), "customers": timedelta(days=30)}
    environment = SimpleNamespace(log=SimpleNamespace(deletion_retention=lambda topics: spans))
    begun = time.time() - 24 * 60 * 60 * days
    state = BuildState({"orders": {0: first}}, {"orders": {0: 9}}, {}, begun=begun)
    assert _has_waited(environment, SimpleNamespace(topics=["orders"]), state) is anew
