"""Projection groups as the views' database and the log have them: what `projections status --lag` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from eventstore.errors import TopicMissing
from factfold.cli.views.opened_views import add_lag
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from factfold.console.definitions import Definitions
    from projections import ProjectionGroup

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


def declared_groups(definitions: Definitions) -> tuple[GroupState, ...]:
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
