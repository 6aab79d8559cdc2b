"""The runner over a log and a store that are figures: back pressure, lag, and the end of failures that pass."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from threading import Event
from types import SimpleNamespace

import pytest

from eventstore import Restarts
from eventstore.errors import BrokerUnreachable, TopicMissing
from projections import BatchReport
from projections.errors import (
    DefinitionChanged,
    OffsetsLost,
    ProjectionError,
    RunAlreadyActive,
    SparkFailed,
    SparkStopped,
    TableStoreUnavailable,
)
from projections.lifecycle import follower as module
from projections.lifecycle.follower import Follower
from projections.lifecycle.metrics import LagClock, RunMetrics, waited_seconds
from projections.lifecycle.runner import Runner
from projections.logs.offsets import BatchSize
from projections.logs.ranges import Boundaries
from tests.errors import raises

GROUP = SimpleNamespace(name="shop", inputs=("orders",))
SIZE = BatchSize(records=1_000, least=10, most=1_000, target=1.0)


class World:
    """A topic of so many records, and a store that takes so many seconds for each."""

    def __init__(self, records, seconds_a_record=0.0):
        self.end, self.seconds_a_record, self.batches = records, seconds_a_record, []

    def end_offsets(self, topics):
        return {"orders": {0: self.end}}

    def deletions_complete_from(self, topics):
        return {}

    def oldest(self, offsets):
        return None

    def apply(self, offsets):
        self.batches.append(offsets.records)
        return BatchReport(offsets.records, seconds={"commit": offsets.records * self.seconds_a_record})


def runner(world, metrics=None):
    progress = {"orders": {0: 0}}
    topics = SimpleNamespace(require=lambda: None)
    return Runner(GROUP, world, world, progress, boundaries=Boundaries(), batch=SIZE, topics=topics, metrics=metrics)


def sampled(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"factfold_projection_{name}", {"group": "shop", **labels})


def test_a_slow_store_makes_batches_smaller_and_never_is_more_asked_for_than_a_batch():
    world = World(20_000, seconds_a_record=0.01)
    runner(world).catch_up()
    assert sum(world.batches) == 20_000
    assert max(world.batches) <= SIZE.most
    assert max(world.batches[5:]) <= 125  # a second's worth, and what counts as near to it


def test_a_stop_is_heeded_between_two_batches_of_catching_up():
    world, stop = World(3_000), Event()
    assert not runner(world).run_to(stop=stop, on_look=lambda report: stop.set())
    assert world.batches == [1_000]


def test_catching_up_ends_at_the_ends_there_were_when_it_began_and_tells_of_each_batch():
    world, seen = World(2_000), []

    def grows(report):
        seen.append(report.records)
        world.end += 1_000

    assert runner(world).run_to(stop=Event(), on_look=grows)
    assert seen == [1_000, 1_000]


def test_a_run_that_is_late_is_told_with_what_it_applied_kept():
    world = World(3_000)
    late = runner(world)
    with raises(ProjectionError, code="not-caught-up", match="within 0 s"):
        late.catch_up(deadline=0.0)
    assert late.progress == {"orders": {0: 1_000}}


def test_a_quick_store_gets_the_largest_batches_there_may_be():
    world = World(20_000, seconds_a_record=0.0001)
    runner(world).catch_up()
    assert world.batches == [1_000] * 20


def test_the_first_batch_which_makes_the_plans_says_nothing_of_the_next():
    world = World(3_000, seconds_a_record=1.0)
    first = runner(world)
    first.run_once()
    assert first.batch == SIZE
    first.run_once()
    assert first.batch.records == 250


def test_a_bound_that_is_given_replaces_the_size():
    world = World(5_000)
    runner(world).run_once(max_records=77)
    assert world.batches == [77]


def test_a_report_says_how_far_behind_the_run_is_and_metrics_do_too():
    world, metrics = World(1_500), RunMetrics("shop")
    live = runner(world, metrics)
    assert live.run_once().lag_offsets == 500
    assert sampled(metrics, "lag_offsets", topic="orders") == 500
    assert live.run_once().lag_offsets == 0
    assert live.run_once() is None
    assert sampled(metrics, "lag_seconds") == 0


def test_metrics_tell_the_lag_of_a_batch_that_fails():
    world, metrics = World(1_500), RunMetrics("shop")
    live = runner(world, metrics)
    world.apply = lambda offsets: 1 / 0
    with pytest.raises(ZeroDivisionError):
        live.run_once()
    assert sampled(metrics, "lag_offsets", topic="orders") == 1500


def ends(offset):
    return {"orders": {0: offset}}


def test_lag_is_the_age_of_the_oldest_look_that_is_not_reached():
    clock = LagClock()
    clock.saw(ends(10), at=100.0)
    clock.saw(ends(30), at=105.0)
    clock.saw(ends(30), at=106.0)
    assert clock.lag(ends(0), now=107.0).seconds == 7.0
    assert clock.lag(ends(0), now=107.0).records == 30
    assert clock.lag(ends(10), now=107.0).seconds == 2.0
    assert clock.lag(ends(30), now=107.0) == clock.lag(ends(31), now=200.0)
    assert clock.lag(ends(30), now=300.0).seconds == 0.0


def test_a_run_that_never_catches_up_keeps_a_bounded_memory_of_its_looks():
    clock = LagClock()
    for second in range(5_000):
        clock.saw(ends(second + 1), at=float(second))
    assert clock.lag(ends(0), now=5_000.0).seconds == 5_000.0
    assert len(clock._looks) <= 600


def test_what_waited_before_the_runner_opened_is_as_old_as_its_record_says():
    world = World(10)
    world.oldest = lambda offsets: datetime.now(UTC) - timedelta(seconds=3_600)
    live = runner(world)
    live.run_once(max_records=3)
    assert 3_600 <= live.lag().seconds < 3_700


def test_a_run_that_is_far_behind_asks_again_whether_deletions_have_gone_unread():
    world = World(10)
    live = runner(world)
    live.run_once(max_records=3)
    world.deletions_complete_from = lambda topics: {"orders": {0: 5}}
    live.run_once(max_records=1)  # not behind: nobody asks before each batch
    world.end = 20
    live._clock._looks = [(0.0, ends(20))]
    with pytest.raises(OffsetsLost, match="older than the topic's deletions"):
        live.run_once()


class Looked:
    """A log whose oldest record is of a moment, and whose records before an offset are gone."""

    def __init__(self, moment, *, kept_from=0):
        self.moment, self.kept_from = moment, kept_from

    def oldest(self, offsets):
        if any(first < self.kept_from for parts in offsets.not_empty().start.values() for first in parts.values()):
            raise OffsetsLost("gone", remedy="rebuild", place="orders")
        return self.moment


@pytest.mark.parametrize(
    ("progress", "moment", "kept_from", "seconds"),
    [(10, 60, 0, 60.0), (30, 60, 0, 0.0), (31, 60, 0, 0.0), (10, None, 0, None), (10, 60, 11, None), (10, -5, 0, 0.0)],
)
def test_a_run_that_nobody_keeps_lags_by_the_age_of_its_next_record(progress, moment, kept_from, seconds):
    now = datetime(2026, 2, 3, tzinfo=UTC)
    log = Looked(None if moment is None else now - timedelta(seconds=moment), kept_from=kept_from)
    assert waited_seconds(log, ends(progress), ends(30), now=now) == seconds


class Script:
    """What each opened runner ends with; the last one by ``stop``."""

    def __init__(self, *ends):
        self.ends, self.stop, self.opened = list(ends), Event(), 0

    @contextlib.contextmanager
    def open_runner(self, environment, group, *, options, metrics):
        self.opened += 1
        yield self

    def run(self, *, stop, on_batch):
        end = self.ends.pop(0) if self.ends else self.stop.set
        if isinstance(end, Exception):
            raise end
        end() if end is not BATCH else (on_batch(BatchReport(1)), self.run(stop=stop, on_batch=on_batch))


BATCH = object()


def failed(kind):
    return kind("cause", remedy="do something")


@pytest.fixture
def follow(monkeypatch):
    def start(*ends, limit=3):
        script = Script(*ends)
        monkeypatch.setattr(module, "open_runner", script.open_runner)
        policy = Restarts(limit=limit, first=0.0)
        follower = Follower(environment=None, group=GROUP, policy=policy, metrics=RunMetrics("shop"))
        return follower, script

    return start


def test_a_store_and_a_broker_that_are_away_for_a_while_cost_restarts_and_nothing_else(follow):
    follower, script = follow(*map(failed, (TableStoreUnavailable, BrokerUnreachable, SparkFailed)))
    follower.run(stop=script.stop)
    assert (script.opened, follower.restarts) == (4, 3)
    labels = {"runner": "projections", "name": "shop"}
    assert follower.metrics.registry.get_sample_value("factfold_runner_restarts_total", labels) == 3


@pytest.mark.parametrize("limit", [1, 3])
def test_what_comes_before_the_run_outwaits_what_passes_too(follow, limit):
    """Such as the first rebuild, which a broker's absence ended at once."""
    follower, script = follow(limit=limit)
    ends = [*map(failed, (BrokerUnreachable, TableStoreUnavailable)), None]

    def work():
        if (end := ends.pop(0)) is not None:
            raise end

    if limit == 1:
        with raises(ProjectionError, code="gave-up", match="failed 2 times in a row"):
            follower.outwait(work, stop=script.stop)
    else:
        follower.outwait(work, stop=script.stop)
        assert (ends, follower.restarts) == ([], 2)


def test_a_batch_between_two_failures_makes_the_count_begin_anew(follow):
    down = [failed(TableStoreUnavailable) for _ in range(3)]
    follower, script = follow(*down, BATCH, *map(failed, [TableStoreUnavailable] * 3))
    follower.run(stop=script.stop)
    assert follower.restarts == 6
    assert follower.failures == 3


@pytest.mark.parametrize("kind", [DefinitionChanged, TopicMissing, SparkStopped, RunAlreadyActive])
def test_what_does_not_pass_by_itself_ends_the_run_at_once(follow, kind):
    follower, script = follow(failed(kind))
    with pytest.raises(kind):
        follower.run(stop=script.stop)
    assert script.opened == 1


def test_the_lock_of_a_connection_that_was_lost_is_waited_for(follow):
    follower, script = follow(failed(TableStoreUnavailable), failed(RunAlreadyActive))
    follower.run(stop=script.stop)
    assert follower.restarts == 2
