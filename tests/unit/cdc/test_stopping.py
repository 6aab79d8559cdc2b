"""Stopping a connector whose worker forgets what it was asked, or shows a task that is gone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from cdc.connect.status import FAILED, RUNNING, STOPPED, ConnectorStatus, TaskStatus
from cdc.errors import ConnectorTimeout, UnknownConnector
from cdc.operating import control, stopping
from cdc.operating.watch import Deadline


@dataclass
class Worker:
    """Shows one status after another: the next one each time it is asked to stop, None for no status yet."""

    shown: list[tuple[str, str] | None]
    calls: list[str] = field(default_factory=list)

    def stop(self, name):
        self.calls.append("stop")

    def restart(self, name, *, include_tasks):
        assert not include_tasks
        self.calls.append("restart")

    def delete_offsets(self, name):
        self.calls.append("forget")

    def status(self, name):
        now = self.shown[min(self.calls.count("stop"), len(self.shown)) - 1]
        if now is None:
            raise UnknownConnector("none", remedy="", status=404)
        state, task = now
        return ConnectorStatus(name, state, "here", (TaskStatus(0, task, "here"),) if task else ())


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(stopping, "_ASK_AGAIN_SECONDS", 0.05)


def stopped(worker, *, timeout=60.0, or_failed=False):
    return stopping.stop(worker, "shop", Deadline("shop", timeout), or_failed=or_failed)


def test_a_stop_that_is_followed_is_asked_for_once():
    worker = Worker([(STOPPED, "")])
    assert stopped(worker).stopped
    assert worker.calls == ["stop"]


@pytest.mark.parametrize("task", [RUNNING, "UNASSIGNED"])
def test_a_task_that_goes_on_being_shown_is_cleared_by_another_stop(task):
    worker = Worker([(STOPPED, task), (STOPPED, task), (STOPPED, "")])
    assert stopped(worker).stopped
    assert worker.calls == ["stop", "stop", "stop"]


def test_a_connector_that_did_not_hear_of_the_stop_is_started_anew_to_read_of_it():
    worker = Worker([(RUNNING, RUNNING), (STOPPED, "")])
    assert stopped(worker).stopped
    assert worker.calls == ["stop", "stop", "restart"]


class Broken(Worker):
    """Its connector's own start FAILED, and it does nothing until it is started anew."""

    def status(self, name):
        return ConnectorStatus(name, STOPPED if "restart" in self.calls else FAILED, "here", ())


def test_a_connector_whose_own_start_failed_is_started_anew_at_once_to_be_stopped():
    worker = Broken([])
    assert stopped(worker).stopped
    assert worker.calls == ["stop", "restart"]


def test_one_without_a_status_is_only_asked_again():
    worker = Worker([None, (STOPPED, "")])
    assert stopped(worker).stopped
    assert worker.calls == ["stop", "stop"]


def test_a_deadline_says_what_was_seen_last():
    with pytest.raises(ConnectorTimeout, match="not stopped after 0 s: STOPPED, task 0 UNASSIGNED"):
        stopped(Worker([(STOPPED, "UNASSIGNED")]), timeout=0.2)
    with pytest.raises(ConnectorTimeout, match="not stopped after 0 s: no status yet"):
        stopped(Worker([None]), timeout=0.2)


def test_one_that_failed_at_its_start_counts_as_stopped_for_those_who_forget_it():
    worker = Worker([(FAILED, "")])
    assert stopped(worker, or_failed=True).state == FAILED
    with pytest.raises(ConnectorTimeout, match="FAILED, no task"):
        stopped(worker, timeout=0.1)


def test_offsets_are_forgotten_after_a_stop_that_took_two_requests():
    worker = Worker([(STOPPED, RUNNING), (STOPPED, "")])
    control.reset_offsets(worker, "shop")
    assert worker.calls == ["stop", "stop", "forget"]
