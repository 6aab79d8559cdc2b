"""What a run measures: sizes of batches, what waits, and deletions that went unread."""

from __future__ import annotations

import time
import urllib.request
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from eventstore.metrics import serve_metrics
from projections import BatchReport
from projections.errors import InvalidDefinition, OffsetsLost
from projections.lifecycle.building import BuildState, _has_waited
from projections.lifecycle.metrics import RunLag, RunMetrics
from projections.logs.offsets import BatchSize
from projections.logs.ranges import require_deletions
from tests.rows import each_row

REPORT = BatchReport(5, 4, 3, 2, 1, {"bad_json": 2}, {"read": 0.5, "commit": 1.0})


def scraped(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name.removeprefix("factfold_projection_"), *(v for k, v in sample.labels.items() if k != "group")): (
            sample.value
        )
        for family in families
        for sample in family.samples
        if sample.labels.get("group") == "shop" or sample.labels.get("name") == "shop"
    }


RESTARTS, FAILURES = (
    (f"factfold_runner_{name}", "shop", "projections") for name in ("restarts_total", "failures_in_a_row")
)


@pytest.fixture
def metrics():
    return RunMetrics("shop")


@pytest.fixture
def port(metrics):
    with serve_metrics(metrics, port=0) as port:
        yield port


def test_batches_are_counted_with_their_steps_and_bad_records(metrics, port):
    for _ in range(2):
        metrics.batch(REPORT)
    found = scraped(port)
    counts = ("batches", "records", "staged_rows", "affected_keys", "upserts", "retractions")
    assert [found[(f"{name}_total",)] for name in counts] == [2, 10, 8, 6, 4, 2]
    assert found["step_seconds_total", "commit"] == 2.0
    assert found["bad_records_total", "bad_json"] == 4
    assert found[("batch_seconds_sum",)] == 3.0
    assert [found["batch_seconds_bucket", bound] for bound in ("1.0", "2.5", "60.0", "+Inf")] == [0, 2, 2, 2]


def test_what_was_never_counted_is_there_and_zero(port):
    found = scraped(port)
    names = ("batches_total", "upserts_total", "lag_seconds")
    assert [found[key] for key in (*((name,) for name in names), RESTARTS, FAILURES)] == [0, 0, 0, 0, 0]


def test_what_waits_grows_older_from_scrape_to_scrape_though_no_batch_succeeds(metrics, port):
    metrics.standing(RunLag({"t": 3}, 1.5), topics=["t"], batch_size=7)
    first, second = scraped(port), scraped(port)
    assert 1.5 < first[("lag_seconds",)] < second[("lag_seconds",)]
    assert (first["lag_offsets", "t"], first[("batch_size",)]) == (3, 7)
    metrics.standing(RunLag({}, 0.0), topics=["t"], batch_size=7)
    assert scraped(port)[("lag_seconds",)] == 0.0


def test_rows_that_are_forgotten_are_counted_by_table_and_those_that_wait_to_be_published_by_topic(metrics, port):
    for _ in range(2):
        metrics.forgot({"searches": 3, "in_minutes": 1})
    metrics.waiting({"orders-shown": 3, "others": 0})
    found = scraped(port)
    assert [found["rows_forgotten_total", name] for name in ("searches", "in_minutes")] == [6, 2]
    assert (found["outbox_rows", "orders-shown"], found["outbox_rows", "others"]) == (3, 0)


def test_failures_in_a_row_are_forgotten_when_the_run_goes_well(metrics, port):
    metrics.restarted(3)
    assert (scraped(port)[RESTARTS], scraped(port)[FAILURES]) == (1, 3)
    metrics.recovered()
    assert scraped(port)[FAILURES] == 0


# ---- the size of batches follows the time they take, within its bounds; a store that becomes slow gets smaller ones


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


@each_row(
    ("records", "seconds", "following"),
    [
        (10_000, 4.0, 5_000), (10_000, 400.0, 2_500),  # shrinks at once, and no further than to a quarter
        (10_000, 0.01, 20_000), (10_000, 0.0, 20_000),  # doubles at most
        (10, 0.1, 10_000),  # few quick records say nothing of many
        (6_000, 4.0, 3_000), (300, 3.0, 2_500),  # and few slow ones cost no more than many
        (10_000, 2.2, 10_000), (10_000, 1.8, 10_000),  # near its target it stays
    ],
)  # fmt: skip
def test_one_batch_tells_the_size_of_the_next(records, seconds, following):
    assert SIZE.after(records, seconds=seconds) == replace(SIZE, records=following)


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


# ---- who stood still for longer than a compacted topic keeps deletions is told so, and nobody else


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
    with pytest.raises(OffsetsLost, match="partition 1"):
        required(at, end, other=49)


@pytest.mark.parametrize(
    ("days", "first", "kept", "anew"), [(3, 5, 2, True), (1, 5, 2, False), (3, 9, 2, False), (3, 5, None, False)]
)
def test_chunks_are_not_merged_behind_others_that_were_read_before_deletions_went(days, first, kept, anew):
    spans = {} if kept is None else {"orders": timedelta(days=kept), "customers": timedelta(days=30)}
    environment = SimpleNamespace(log=SimpleNamespace(deletion_retention=lambda topics: spans))
    begun = time.time() - 24 * 60 * 60 * days
    state = BuildState({"orders": {0: first}}, {"orders": {0: 9}}, {}, begun=begun)
    assert _has_waited(environment, SimpleNamespace(topics=["orders"]), state) is anew
