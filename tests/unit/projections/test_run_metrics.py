"""Metrics as Prometheus' own parser reads them, over HTTP; counters only rise."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eventstore.errors import FactfoldError
from eventstore.metrics import serve_metrics
from projections import BatchReport
from projections.lifecycle.metrics import RunLag, RunMetrics
from tests.errors import raises

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


def test_rows_that_are_forgotten_are_counted_by_table(metrics, port):
    for _ in range(2):
        metrics.forgot({"searches": 3, "in_minutes": 1})
    found = scraped(port)
    assert [found["rows_forgotten_total", name] for name in ("searches", "in_minutes")] == [6, 2]


def test_rows_that_wait_to_be_published_are_told_by_their_topic(metrics, port):
    metrics.waiting({"orders-shown": 3, "others": 0})
    found = scraped(port)
    assert (found["outbox_rows", "orders-shown"], found["outbox_rows", "others"]) == (3, 0)


def test_failures_in_a_row_are_forgotten_when_the_run_goes_well(metrics, port):
    metrics.restarted(3)
    assert (scraped(port)[RESTARTS], scraped(port)[FAILURES]) == (1, 3)
    metrics.recovered()
    assert scraped(port)[FAILURES] == 0


def test_a_port_that_is_taken_is_said(metrics, port):
    with raises(FactfoldError, code="port-taken", match="cannot be served"), serve_metrics(metrics, port=port):
        pass
