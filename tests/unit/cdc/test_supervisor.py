"""A supervisor over a cluster of our own making, on a clock of our own."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from cdc import MirrorCheckpoint, Supervisor
from cdc.connect.status import FAILED, PAUSED, RUNNING, STOPPED, ConnectorInfo, ConnectorStatus, TaskStatus
from cdc.errors import ConnectUnavailable, RestartsExhausted, UnknownConnector
from cdc.operating.control import TASKLESS_SECONDS
from cdc.operating.supervisor import RESTARTS
from eventstore import Restarts

TRACE = "java.lang.Exception: Tolerance exceeded\nCaused by: java.lang.Exception: Publication autocreation is disabled"
POLICY = Restarts(limit=4, longest=4.0)
HEALTHY_AFTER = 30.0


@dataclass
class Cluster:
    """Connectors by name, each FAILED until it was restarted so many times; counts from 0 again once it runs."""

    cures: dict[str, int]
    state: dict[str, str] = field(default_factory=dict)
    now: float = 0.0
    away: bool = False
    restarts: list[tuple[str, float]] = field(default_factory=list)
    taskless: set[str] = field(default_factory=set)
    classes: dict[str, str] = field(default_factory=dict)

    def overview(self):
        if self.away:
            raise ConnectUnavailable("nobody answers", remedy="start the worker")
        return {name: (self._info(name), self._status(name)) for name in self.cures}

    def info(self, name):
        if name not in self.cures:
            raise UnknownConnector(name, remedy="", status=404)

    def restart(self, name, *, only_failed):
        assert only_failed is (name not in self.taskless)
        self.restarts.append((name, self.now))
        self.taskless.discard(name)
        self.cures[name] -= 1

    def _info(self, name):
        return ConnectorInfo(name, "source", {"connector.class": self.classes.get(name, "")}, ())

    def _status(self, name):
        state = FAILED if self.cures[name] > 0 and name not in self.taskless else RUNNING
        task = TaskStatus(0, state, "here", TRACE if state == FAILED else "")
        return ConnectorStatus(name, self.state.get(name, RUNNING), "here", () if name in self.taskless else (task,))


class Ends(threading.Event):
    """Waiting lets the time of a cluster pass; set after so many seconds. `happen`: what happens at which time."""

    def __init__(self, cluster, *, after, happen=None):
        super().__init__()
        self._cluster, self._after, self._happen = cluster, after, dict(happen or {})

    def wait(self, timeout=None):
        self._cluster.now += timeout
        for at in [at for at in self._happen if at <= self._cluster.now]:
            self._happen.pop(at)()
        if self._cluster.now >= self._after:
            self.set()
        return self.is_set()


def supervised(cluster, names=None, *, after=600.0, happen=None):
    supervisor = Supervisor(
        cluster,
        names,
        policy=POLICY,
        healthy_after=HEALTHY_AFTER,
        poll=0.5,
        clock=lambda: cluster.now,
        chance=lambda: 1.0,
    )
    with capture_logs() as logs:
        try:
            supervisor.run(Ends(cluster, after=after, happen=happen))
        except RestartsExhausted as exhausted:
            return logs, exhausted
    return logs, None


def events(logs):
    return [log["event"] for log in logs]


def test_a_failed_task_is_restarted_until_it_runs_and_the_waits_double_up_to_the_longest():
    cluster = Cluster({"shop": 4})
    logs, exhausted = supervised(cluster)
    times = [0.0, *(at for _, at in cluster.restarts)]
    assert [round(b - a) for a, b in pairwise(times)] == [1, 2, 4, 4]
    assert exhausted is None
    assert events(logs) == ["connector failed", "connector restarted"] * 4 + ["connector recovered"]
    assert "factfold cdc prepare" in logs[0]["remedy"]
    assert "Publication autocreation is disabled" in logs[0]["cause"]


def test_what_no_restart_cures_is_given_up_with_its_causes_and_its_remedy():
    cluster = Cluster({"shop": 100})
    logs, exhausted = supervised(cluster)
    assert len(cluster.restarts) == POLICY.limit
    assert (logs[-1]["event"], logs[-1]["log_level"]) == ("connector given up", "error")
    assert [failure.trace[-1] for failure in exhausted.failures] == ["Exception: Publication autocreation is disabled"]
    assert "Publication autocreation is disabled" in exhausted.message
    assert "factfold cdc prepare" in exhausted.remedy
    assert cluster.now < 60


def test_the_others_go_on_being_watched_when_one_is_given_up():
    cluster = Cluster({"lost": 100, "shop": 0})
    _, exhausted = supervised(cluster, happen={100.0: lambda: cluster.cures.update(shop=1)})
    assert next(at for name, at in cluster.restarts if name == "shop") > 100
    assert [failure.place for failure in exhausted.failures] == ["lost on worker here"]


def test_one_that_was_given_up_and_repaired_by_hand_is_supervised_again():
    cluster = Cluster({"shop": 100, "other": 0})
    repaired = {100.0: lambda: cluster.cures.update(shop=0), 200.0: lambda: cluster.cures.update(shop=1)}
    logs, exhausted = supervised(cluster, happen=repaired)
    assert exhausted is None
    assert len(cluster.restarts) == POLICY.limit + 1
    assert events(logs).count("connector recovered") == 2


@pytest.mark.parametrize(("share", "restarts"), [(1.5, 10), (0.5, POLICY.limit)])
def test_restarts_are_counted_anew_after_a_healthy_while_and_not_before(share, restarts):
    cluster = Cluster({"shop": 1})
    every = HEALTHY_AFTER * share
    again = {every * n: lambda: cluster.cures.update(shop=1) for n in range(1, 10)}
    _, exhausted = supervised(cluster, happen=again)
    assert (len(cluster.restarts), exhausted is None) == (restarts, restarts > POLICY.limit)


def test_a_restart_that_the_worker_refuses_is_tried_again(monkeypatch):
    cluster = Cluster({"shop": 1})
    refusals = iter([ConnectUnavailable("gone", remedy=""), UnknownConnector("gone", remedy="", status=404)])
    restart = cluster.restart

    def refusing(name, *, only_failed):
        for refusal in refusals:
            raise refusal
        restart(name, only_failed=only_failed)

    monkeypatch.setattr(cluster, "restart", refusing)
    logs, exhausted = supervised(cluster)
    assert exhausted is None
    assert events(logs) == [
        "connector failed", "restart refused", "restart refused", "connector restarted", "connector recovered",
    ]  # fmt: skip


@pytest.mark.parametrize("state", [PAUSED, STOPPED])
def test_one_that_somebody_put_to_rest_is_left_alone(state):
    cluster = Cluster({"shop": 1}, state={"shop": state})
    assert supervised(cluster) == ([], None)
    assert cluster.restarts == []


def test_a_worker_that_is_away_is_waited_for_and_told_of_once():
    cluster = Cluster({"shop": 1}, away=True)
    logs, exhausted = supervised(cluster, happen={60.0: lambda: setattr(cluster, "away", False)})
    assert exhausted is None
    assert events(logs) == [
        "worker away", "worker back", "connector failed", "connector restarted", "connector recovered",
    ]  # fmt: skip


def test_a_connector_that_runs_without_a_task_for_long_is_restarted():
    cluster = Cluster({"shop": 0}, taskless={"shop"})
    logs, exhausted = supervised(cluster)
    assert exhausted is None
    ((_, at),) = cluster.restarts
    assert TASKLESS_SECONDS < at < TASKLESS_SECONDS + 3
    assert "runs without a task" in logs[0]["cause"]


@pytest.mark.parametrize("java_class", [MirrorCheckpoint.JAVA_CLASS, "MirrorSourceConnector", "MirrorSource"])
def test_a_mirror_that_has_nothing_to_copy_yet_is_left_alone(java_class):
    cluster = Cluster({"copies": 0}, taskless={"copies"}, classes={"copies": java_class})
    assert supervised(cluster) == ([], None)
    assert cluster.restarts == []


def test_only_those_asked_for_are_watched():
    cluster = Cluster({"shop": 1, "other": 1})
    supervised(cluster, ["shop"])
    assert [name for name, _ in cluster.restarts] == ["shop"]


def test_a_name_that_nobody_knows_is_refused_and_one_that_goes_later_is_not():
    with pytest.raises(UnknownConnector):
        supervised(Cluster({"shop": 0}), ["shpo"])
    cluster = Cluster({"shop": 1, "other": 0})
    assert supervised(cluster, ["shop", "other"], happen={0.5: lambda: cluster.cures.pop("shop")})[1] is None


def test_one_that_comes_later_is_watched_too_where_all_are():
    cluster = Cluster({})
    supervised(cluster, happen={50.0: lambda: cluster.cures.update(late=1)})
    assert [name for name, _ in cluster.restarts] == ["late"]


def test_connectors_that_fail_together_do_not_start_together():
    assert [first_wait(chance) for chance in (0.0, 0.5, 1.0)] == [0.5, 0.75, 1.0]
    waits = [RESTARTS.delay(n + 1) for n in range(RESTARTS.limit)]
    assert 250 < sum(waits) < 350  # five minutes, as its comment says


def first_wait(chance):
    supervisor = Supervisor(Cluster({"shop": 1}), policy=POLICY, clock=lambda: 0.0, chance=lambda: chance)
    with capture_logs():
        supervisor.look()
    return supervisor._watched["shop"].due
