"""Waiting for a connector whose worker says odd things."""

from __future__ import annotations

import pytest

from cdc.connect.status import RUNNING, ConnectorStatus, TaskStatus
from cdc.errors import ConnectorTimeout
from cdc.operating import watch
from cdc.operating.watch import Deadline, Until, Watch


class Worker:
    """Its connector runs; its task comes after so many restarts."""

    def __init__(self, *, after):
        self._after = after
        self.restarts = 0

    def status(self, name):
        tasks = (TaskStatus(0, RUNNING, "here", ""),) if self.restarts >= self._after else ()
        return ConnectorStatus(name, RUNNING, "here", tasks)

    def restart(self, name):
        self.restarts += 1


def waited(worker, *, timeout, may_be_idle=False):
    watching = Watch(
        worker, "shop", until=Until.RUNNING, source=None, deadline=Deadline("shop", timeout), may_be_idle=may_be_idle
    )
    return watching.until_there((), content_after=0)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_connector_that_runs_without_a_task_is_restarted_until_it_has_one(monkeypatch, after):
    monkeypatch.setattr(watch, "TASKLESS_SECONDS", 0.05)
    worker = Worker(after=after)
    assert waited(worker, timeout=60).running
    assert worker.restarts == after


def test_one_that_has_nothing_to_do_yet_is_waited_for_a_little_and_left_alone(monkeypatch):
    monkeypatch.setattr(watch, "CONTENT_SECONDS", 0.05)
    worker = Worker(after=1)
    assert waited(worker, timeout=60, may_be_idle=True).tasks == ()
    assert worker.restarts == 0


def test_one_whose_tasks_are_only_late_is_left_alone():
    worker = Worker(after=1)
    with pytest.raises(ConnectorTimeout, match="RUNNING, no task"):
        waited(worker, timeout=0.3)
    assert worker.restarts == 0
