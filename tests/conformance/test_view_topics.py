"""A view's topic folds to the view: after every batch, cut-over and kill, on both databases; no Spark, no broker."""

from __future__ import annotations

import json

import pytest

from projections.stores import outbox, staging
from projections.testing.memory_log import MemoryLog
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.sold_views import COLUMNS, GROUP, SQL, History, changed
from tests.conformance.topic_folds import Died, dies_instead_of, folded, publisher, rows_of, waiting

pytestmark = pytest.mark.postgres_in_faults


@pytest.fixture
def log():
    return MemoryLog()


@pytest.fixture
def batches(store, log):
    return RelationalBatches(store, log, GROUP, SQL, COLUMNS)


def assert_folds_are_the_views(store, log, batches):
    layout = batches._layout
    for view_ in layout.views.values():
        assert folded(log, view_.definition.topic.name) == rows_of(store, view_)


def check_history(store, log, batches, *, seed=7, every=1):
    """Publish after every batch, or after several; the topics are to fold to the views then."""
    history, publishes = History(log, seed), publisher(store, log, "sold")
    for number in range(12):
        for _ in range(3):
            history.step()
        batches.catch_up()
        if number % every == 0:
            publishes.publish()
            assert_folds_are_the_views(store, log, batches)


@pytest.mark.both_databases
def test_a_topic_folds_to_its_view_after_every_batch_and_nothing_is_left(store, log, batches):
    check_history(store, log, batches)
    assert waiting(store) == {"sold": {"sides": 0, "rows": 0}}
    keys = [json.loads(key) for key, _ in log.records("sides")]
    assert any(key["id"] is None for key in keys)  # customers without orders
    assert any(value is None for _, value in log.records("sides"))


@pytest.mark.both_databases
def test_a_publisher_that_is_behind_publishes_the_newest_of_each_key(store, log, batches):
    check_history(store, log, batches, every=4)


@pytest.mark.both_databases
def test_who_is_killed_between_commit_and_publishing_is_followed_by_one_that_publishes(
    store, log, batches, monkeypatch
):
    changed(log)
    batches.catch_up()  # committed, and never published by this process
    left = waiting(store)["sold"]["sides"]
    assert left > 0
    assert log.records("sides") == ()
    with dies_instead_of(outbox, "remove_upto", monkeypatch), pytest.raises(Died):
        publisher(store, log, "sold").publish()  # published, and killed before it could say so
    assert waiting(store)["sold"]["sides"] == left
    before = folded(log, "sides")
    publisher(store, log, "sold").publish()
    assert folded(log, "sides") == before
    assert_folds_are_the_views(store, log, batches)


@pytest.mark.both_databases
def test_a_batch_that_is_not_committed_is_not_published(store, log, batches, monkeypatch):
    changed(log)
    with dies_instead_of(staging, "_merge_view", monkeypatch), pytest.raises(Died):
        batches.catch_up()
    assert publisher(store, log, "sold").publish() == 0
    batches.catch_up()
    publisher(store, log, "sold").publish()
    assert_folds_are_the_views(store, log, batches)


def test_the_planted_fault_is_seen_published_before_the_commit(store, log, batches, monkeypatch):
    hand_over = staging.hand_over_batch

    def published_too_early(connection, layout, run):
        hand_over(connection, layout, run)
        log.view_topics().send(outbox.first_chunk(connection, run.group).rows)
        raise Died

    changed(log)
    with monkeypatch.context() as patched:
        patched.setattr(staging, "hand_over_batch", published_too_early)
        with pytest.raises(Died):
            batches.catch_up()
    with pytest.raises(AssertionError):
        assert_folds_are_the_views(store, log, batches)
