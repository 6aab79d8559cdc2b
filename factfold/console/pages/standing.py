"""Projection groups as the views' database and the log have them: what `projections status --lag` prints.

Branches as their router's checkpoint and the topics have them: what `branches status` prints.

The event store and its relay, as `store status` and `relay status` print them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import projections
from eventstore.errors import FactfoldError, TopicMissing
from factfold import on_demand
from factfold.cli.events.store import StoreStanding, require_current, store_standing
from factfold.cli.views.projections import add_lag
from factfold.console.parts import Problem
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from eventstore.relay import RelayStatus
    from factfold.discovery import Discovery
    from projections import ProjectionGroup
    from projections.declaring.branches import Branches

SERVING: Final = "serving"


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group, declared or built: its generations as the command prints them, and what its definition says.

    `changed` says whether the serving generation was built by another definition; None if that is unknown. `version` is
    that of the definition which the console has.
    """

    name: str
    target: str | None
    views: tuple[str, ...]
    generations: Sequence[Mapping[str, Any]]
    changed: bool | None = None
    version: int | None = None

    @property
    def serving(self) -> Mapping[str, Any] | None:
        """The generation that serves."""
        return self.of_status(SERVING)

    def of_status(self, status: str) -> Mapping[str, Any] | None:
        """The newest generation in a status."""
        return next((row for row in reversed(self.generations) if row["status"] == status), None)


def read_groups(clients: Clients) -> tuple[GroupState, ...]:
    """Return every group of the database and of the definitions, by name."""
    rows = _rows(clients)
    names = {row["group"] for row in rows} | {group.name for group in clients.definitions.groups.values()}
    return tuple(_state(clients, name, [row for row in rows if row["group"] == name]) for name in sorted(names))


def declared_groups(definitions: Discovery) -> tuple[GroupState, ...]:
    """Return the groups as they are declared, where no database answers."""
    return tuple(
        GroupState(group.name, target, tuple(view.name for view in group.views), ())
        for target, group in definitions.groups.items()
    )


def _rows(clients: Clients) -> list[dict[str, Any]]:
    rows = clients.views.standing()
    for row in rows:
        try:
            add_lag(clients.log, [row])
        except TopicMissing as missing:
            row |= {"lag": None, "lag_seconds": None, "lag_problem": missing.message}
        if row["status"] == SERVING:
            clients.trends.note(f"group {row['group']}", row["lag_seconds"])
            waiting = None if row["lag"] is None else float(sum(row["lag"].values()))
            clients.trends.note(f"group {row['group']} waiting", waiting)
            applied = sum(offset for partitions in row["progress"].values() for offset in partitions.values())
            clients.trends.note(f"group {row['group']} applied", float(applied))
    return rows


def _state(clients: Clients, name: str, rows: list[dict[str, Any]]) -> GroupState:
    target, group = clients.definitions.group(name) or (None, None)
    views = tuple(view.name for view in group.views) if group else _built_views(rows)
    return GroupState(name, target, views, tuple(rows), _changed(group, rows), None if group is None else group.version)


def _built_views(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(view for row in rows for view in row["columns"]))


def _changed(group: ProjectionGroup | None, rows: list[dict[str, Any]]) -> bool | None:
    serving = [row["fingerprint"] for row in rows if row["status"] == SERVING]
    return None if group is None or not serving else serving[0] != group.fingerprint()


GROUPS: Final = Reading(read_groups)


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
    return tuple(_branches_state(clients, target, one) for target, one in clients.definitions.branches.items())


def _branches_state(clients: Clients, target: str, branches: Branches) -> BranchesState:
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


def read_store(clients: Clients) -> StoreStanding:
    """Look at the event store. Raises StoreNotPrepared if its tables are missing or older."""
    require_current(clients.store)
    return store_standing(clients.store)


STORE: Final = Reading(read_store)
SCHEMAS: Final = Reading(lambda clients: tuple(clients.store.schemas()))


def read_relay(clients: Clients) -> RelayStatus | None:
    """Return how the relay stands; None for a service without Kafka or with Kafka Connect, which needs none."""
    if not clients.places.kafka or clients.places.connect_url is not None:
        return None
    status = on_demand.relay_status(clients.store, clients.settings)
    ends = clients.offsets.end_offsets(clients.offsets.existing(one.topic for one in status.waiting))
    note = clients.trends.note
    note("relay relay", status.seconds)
    note("relay relay waiting", float(status.events))
    note("relay relay published", float(sum(end for partitions in ends.values() for end in partitions.values())))
    return status


RELAY: Final = Reading(read_relay, rest=10.0)
