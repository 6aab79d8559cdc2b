"""Branches as their router's checkpoint and the topics have them: what `branches status` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import projections
from eventstore.errors import FactfoldError
from factfold.console.parts import Problem
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from projections.declaring.branches import Branches


@dataclass(frozen=True, slots=True)
class BranchesState:
    """One definition of branches: how many offsets its router is behind, and the records of each branch topic.

    `lag` is None before the first batch has ended. Without Kafka subscriptions read the branches from the store, and
    there is no router.
    """

    topic: str
    target: str
    branches: Mapping[str, str]
    predicates: Mapping[str, str]
    dead_letter_topic: str
    routed: bool
    lag: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    problem: Problem | None = None


def read_branches(clients: Clients) -> tuple[BranchesState, ...]:
    """Return every declared definition of branches."""
    return tuple(_state(clients, target, one) for target, one in clients.definitions.branches.items())


def _state(clients: Clients, target: str, branches: Branches) -> BranchesState:
    said: dict[str, Any] = {
        "topic": branches.topic,
        "target": target,
        "branches": dict(branches.topics),
        "predicates": {name: str(predicate) for name, predicate in branches.predicates.items()},
        "dead_letter_topic": branches.dead_letter_topic,
    }
    if not clients.places.kafka:
        return BranchesState(**said, routed=False)
    try:
        return BranchesState(**said, routed=True, **_status(clients, branches))
    except FactfoldError as error:
        return BranchesState(**said, routed=True, problem=Problem.of(error))


def _status(clients: Clients, branches: Branches) -> dict[str, Any]:
    if clients.places.checkpoints is None:
        unknown = Problem("the routers' checkpoints are not configured", "set checkpoints in factfold.toml")
        return {"counts": projections.branch_counts(clients.settings, branches), "problem": unknown}
    status = projections.branches_status(clients.settings, branches, checkpoints=clients.places.checkpoints)
    clients.trends.note(f"branches {branches.topic}", status.lag)
    clients.trends.note(f"routed {branches.topic}", float(sum(status.counts.values())))
    return {"lag": status.lag, "counts": status.counts}


BRANCHES: Final = Reading(read_branches)
