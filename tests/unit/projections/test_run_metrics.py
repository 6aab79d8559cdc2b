"""Metrics as Prometheus reads them: a line each, counters that only rise, over HTTP."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

import pytest

from projections.errors import MetricsPortTaken
from projections.lag import RunLag
from projections.metrics import CONTENT_TYPE, RunMetrics, serve_metrics
from projections.spark.incremental import BatchReport

SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\} ([0-9.e+-]+)')
REPORT = BatchReport(5, 4, 3, 2, 1, {"bad_json": 2}, {"read": 0.5, "commit": 1.0})


def samples(metrics):
    found = {}
    for line in metrics.text().splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            found[name.removeprefix("factfold_projection_"), labels] = float(value)
    return found


def test_batches_are_counted_with_their_steps_and_bad_records():
    metrics = RunMetrics("shop")
    for _ in range(2):
        metrics.batch(REPORT)
    found, ours = samples(metrics), 'group="shop"'
    counts = ("batches", "records", "staged_rows", "affected_keys", "upserts", "retractions")
    assert [found[f"{name}_total", ours] for name in counts] == [2, 10, 8, 6, 4, 2]
    assert found["step_seconds_total", f'{ours},step="commit"'] == 2.0
    assert found["bad_records_total", f'{ours},kind="bad_json"'] == 4
    assert found["batch_seconds_sum", ours] == 3.0
    bounds = {labels: value for (name, labels), value in found.items() if name == "batch_seconds_bucket"}
    assert [bounds[f'{ours},le="{bound}"'] for bound in ("1", "2.5", "60", "+Inf")] == [0, 2, 2, 2]


def test_every_family_says_what_it_is_once_before_its_samples():
    metrics = RunMetrics("shop")
    metrics.batch(REPORT)
    metrics.standing(RunLag({"t": 3}, 1.5), topics=["t"], batch_size=7)
    lines = metrics.text().splitlines()
    kinds = {
        line.split()[2]: (number, line.split()[3]) for number, line in enumerate(lines) if line.startswith("# TYPE")
    }
    for number, line in enumerate(lines):
        if not line.startswith("#"):
            family = re.sub(r"_(bucket|sum|count)$", "", line.partition("{")[0])
            assert kinds[family][0] < number
            assert (kinds[family][1] == "counter") == family.endswith("_total")


def test_what_waits_grows_older_from_scrape_to_scrape_though_no_batch_succeeds():
    metrics = RunMetrics("shop")
    assert samples(metrics)["lag_seconds", 'group="shop"'] == 0.0
    metrics.standing(RunLag({"t": 3}, 1.5), topics=["t"], batch_size=7)
    first, second = (samples(metrics)["lag_seconds", 'group="shop"'] for _ in range(2))
    assert 1.5 < first < second
    metrics.standing(RunLag({}, 0.0), topics=["t"], batch_size=7)
    assert samples(metrics)["lag_seconds", 'group="shop"'] == 0.0


def test_labels_are_escaped():
    metrics = RunMetrics("shop")
    metrics.standing(RunLag({}, 0.0), topics=['a"b\\c\nd'], batch_size=1)
    assert r'topic="a\"b\\c\nd"' in metrics.text()


def test_a_scrape_gets_the_figures_and_other_paths_nothing():
    metrics = RunMetrics("shop")
    with serve_metrics(metrics, port=0) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.read().decode() == metrics.text()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/")
        refused.value.close()
        with pytest.raises(MetricsPortTaken, match="cannot be served"), serve_metrics(metrics, port=port):
            pass
