"""Instances of processes and their steps as JSON has them, for commands and for the console."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from factfold.cli.shown_values import as_json

if TYPE_CHECKING:
    from eventstore.messages import RecordedEvent
    from eventstore.processes.administration import InstanceStatus


def status_as_json(status: InstanceStatus) -> dict[str, Any]:
    """An instance as it stands."""
    plain: dict[str, Any] = as_json(status)
    return {**plain, "idle": status.idle.total_seconds()}


def step_as_json(step: RecordedEvent) -> dict[str, Any]:
    """What came, what was decided, the state after it."""
    fields = {"version": step.version, "time": step.time, **step.data, "state": json.loads(step.data["state"])}
    plain: dict[str, Any] = as_json(fields)
    return plain
