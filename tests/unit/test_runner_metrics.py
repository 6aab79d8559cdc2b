"""Metrics of routers, archivers, connectors and of commands that end, as Prometheus reads them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cdc import ConnectorMetrics, Supervisor
from cdc.comparing.report import TableComparison
from cdc.connect.status import ConnectorStatus, TaskStatus
from cdc.operating.supervisor import ConnectorHealth
from cdc.source.catalogue import ReplicationSlot
from eventstore import Restarts
from eventstore.store import Category, FenceStatus
from factfold.watching.metrics import CompareMetrics, VerifyMetrics, WatchMetrics
from projections import ArchiveMetrics, RouterMetrics, ViewVerdict
from projections.branching.router import BranchesStatus
from projections.spark.archive.archiver import Appended
from projections.stores.runs import Run, RunState
from tests.unit.cdc.test_supervisor import Cluster


def sampled(metrics, family, **labels):
    return metrics.registry.get_sample_value(f"factfold_{family}", labels)


def in_file(path):
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_a_router_shows_its_lag_only_after_its_first_batch():
    metrics = RouterMetrics("payment")
    metrics.standing(BranchesStatus("payment", None, {"suspicious": 0}))
    assert sampled(metrics, "branches_lag_offsets", topic="payment") is None
    metrics.standing(BranchesStatus("payment", 3, {"suspicious": 5, "dead-letter": 1}))
    assert sampled(metrics, "branches_lag_offsets", topic="payment") == 3


def test_records_of_branches_are_raised_to_their_totals():
    metrics = RouterMetrics("payment")
    for count in (5, 8):
        metrics.standing(BranchesStatus("payment", 0, {"suspicious": count}))
    assert sampled(metrics, "branches_records_total", topic="payment", branch="suspicious") == 8


def test_an_archiver_counts_appends_and_notes_when_it_was_last_at_the_ends():
    metrics, labels = ArchiveMetrics("lake"), {"topic": "order"}
    metrics.appended(Appended("order", 10, 4, 0.5))
    metrics.appended(Appended("order", 4, 0, 0.25))
    assert sampled(metrics, "archive_offsets_total", **labels) == 14
    assert sampled(metrics, "archive_append_seconds_total", **labels) == 0.75
    assert sampled(metrics, "archive_lag_offsets", **labels) == 0
    assert sampled(metrics, "archive_round_timestamp_seconds", name="lake") is None
    metrics.caught_up(100.0)
    assert sampled(metrics, "archive_round_timestamp_seconds", name="lake") == 100.0


def health(name, *states, slot=None, age=None, well=True):
    tasks = tuple(TaskStatus(number, state, "w") for number, state in enumerate(states))
    return ConnectorHealth(ConnectorStatus(name, "RUNNING", "w", tasks), slot, age, well=well)


def test_a_connector_that_is_deleted_is_no_longer_shown():
    metrics = ConnectorMetrics()
    metrics.standing([health("a", "RUNNING", "FAILED", well=False), health("b", "RUNNING")])
    assert sampled(metrics, "connector_is_well", connector="a") == 0
    assert sampled(metrics, "connector_tasks", connector="a", state="FAILED") == 1
    metrics.standing([health("b", "RUNNING")])
    assert sampled(metrics, "connector_is_well", connector="a") is None
    assert sampled(metrics, "connector_is_well", connector="b") == 1


@pytest.mark.parametrize(("status", "lost"), [("reserved", 0), ("extended", 0), ("unreserved", 1), ("lost", 1)])
def test_a_slot_that_is_about_to_be_lost_counts_as_lost(status, lost):
    metrics, labels = ConnectorMetrics(), {"connector": "a", "slot": "s"}
    slot = ReplicationSlot("s", "pgoutput", "shop", True, status, None if lost else 5, 7, None)
    metrics.standing([health("a", "RUNNING", slot=slot, age=60.0)])
    assert sampled(metrics, "connector_slot_is_lost", **labels) == lost
    assert sampled(metrics, "connector_slot_lag_bytes", **labels) == (None if lost else 5)
    assert sampled(metrics, "connector_slot_retained_bytes", **labels) == 7
    since = time.time() - sampled(metrics, "connector_last_event_timestamp_seconds", connector="a")
    assert since == pytest.approx(60, abs=5)


def test_a_supervisor_counts_restarts_and_shows_what_it_gave_up():
    cluster, metrics = Cluster({"good": 0, "hopeless": 10**9}), ConnectorMetrics()
    policy = Restarts(limit=2, longest=1.0)
    supervisor = Supervisor(
        cluster, policy=policy, clock=lambda: cluster.now, chance=lambda: 0.0, metrics=metrics
    )  # fmt: skip
    for _ in range(20):
        supervisor.look()
        cluster.now += 1.0
    assert sampled(metrics, "connector_restarts_total", connector="hopeless") == 2
    assert sampled(metrics, "connector_restarts_total", connector="good") == 0
    assert sampled(metrics, "connector_is_given_up", connector="hopeless") == 1
    assert sampled(metrics, "connector_is_given_up", connector="good") == 0


def verdict(*, equal):
    return ViewVerdict(3, 3, "a", "a" if equal else "b", (), ())


def test_the_result_of_a_verification_is_written_to_a_file(tmp_path):
    file, began = tmp_path / "verify.prom", time.time()
    verdicts = {"details": verdict(equal=True), "risk": verdict(equal=False)}
    VerifyMetrics().write(str(file), "shop", verdicts, seconds=2.5)
    found = in_file(file)
    assert found["factfold_verify_is_equal", "shop", "details"] == 1
    assert found["factfold_verify_is_equal", "shop", "risk"] == 0
    assert found["factfold_verify_rows", "shop", "risk"] == 3
    assert found["factfold_verify_duration_seconds", "shop"] == 2.5
    assert found["factfold_verify_timestamp_seconds", "shop"] >= began
    assert list(tmp_path.iterdir()) == [file]


def test_the_result_of_a_comparison_is_written_to_a_file(tmp_path):
    file = tmp_path / "compare.prom"
    differs = TableComparison("public.items", "shop.items", ("id",), missing=(("1",),), differing=(("2",), ("3",)))
    CompareMetrics().write(str(file), [differs, TableComparison("public.unread", "", ("id",))])
    found = in_file(file)
    assert found["factfold_compare_is_equal", "shop.items", "public.items"] == 0
    assert found["factfold_compare_differing_keys", "shop.items", "public.items"] == 3
    assert not [key for key in found if "public.unread" in key]


def serving(group, generation, moment, *, paused=False):
    run = Run(group, generation, "f")
    return RunState(run, "serving", {}, paused=paused, held=False, holder=None, built={}, updated_at=moment)


def test_a_view_shows_which_generation_serves_its_lag_and_its_freshness():
    metrics, noon = WatchMetrics(), datetime(2026, 1, 1, 12, tzinfo=UTC)
    metrics.views([serving("shop", 3, noon, paused=True)])
    metrics.progress({"shop": {"order": 5}}, {"shop": {"order": noon}})
    labels = {"group": "shop", "topic": "order"}
    assert sampled(metrics, "view_generation", group="shop") == 3
    assert sampled(metrics, "view_is_paused", group="shop") == 1
    assert sampled(metrics, "view_progress_timestamp_seconds", group="shop") == noon.timestamp()
    assert sampled(metrics, "view_lag_offsets", **labels) == 5
    assert sampled(metrics, "view_applied_commit_timestamp_seconds", **labels) == noon.timestamp()


def test_what_a_look_no_longer_finds_is_no_longer_shown():
    metrics, noon = WatchMetrics(), datetime(2026, 1, 1, 12, tzinfo=UTC)
    metrics.fence("shop", FenceStatus(waiting=1, age=3.0, holder=None))
    metrics.newest_events("shop", {Category("order", "order", 1, 1): noon})
    metrics.views([serving("dropped", 3, noon), serving("here", 1, noon)])
    metrics.progress({"here": {"removed": 5, "order": 1}}, {"here": {"removed": noon}})

    metrics.fence("shop", FenceStatus(waiting=1, age=None, holder=None))
    metrics.newest_events("shop", {})
    metrics.views([serving("here", 1, None)])
    metrics.progress({"here": {"order": 1}}, {"here": {}})

    shown = {(one.name, *one.labels.values()) for family in metrics.registry.collect() for one in family.samples}
    of_views = {one for one in shown if one[0].startswith(("factfold_store", "factfold_view"))}
    assert of_views == {
        ("factfold_store_fence_events", "shop"),
        ("factfold_view_generation", "here"),
        ("factfold_view_is_paused", "here"),
        ("factfold_view_lag_offsets", "here", "order"),
    }
