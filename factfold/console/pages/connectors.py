"""Connectors: states, tasks, causes, slots and snapshots; restart, pause and resume with what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import cdc
from cdc.errors import CdcError
from factfold.cli.cdc.connectors import causes_of, of_its_own, worker
from factfold.console.page import Action, Outcome, Page, Query, chosen, required
from factfold.console.parts import Part, Problem
from factfold.console.readings.connector_health import HEALTH, SLOTS, SNAPSHOTS, HealthShown, SnapshotStep
from factfold.console.readings.connectors import CONNECTORS, ConnectorState
from factfold.console.sources import Look, Sources
from factfold.console.trends import Trend

if TYPE_CHECKING:
    from cdc import ConnectClient, ConnectorStatus
    from cdc.source.catalogue import ReplicationSlot

ACTION_SECONDS: Final = 30.0
"""For so long an action waits for a connector to come to its state."""


@dataclass(frozen=True, slots=True)
class ConnectorLine:
    """A connector in the list of all, with its slot and how the log behind the slot grows."""

    connector: ConnectorState
    slot: ReplicationSlot | None
    trend: Trend


@dataclass(frozen=True, slots=True)
class Detail:
    """One connector."""

    line: ConnectorLine
    health: Part[HealthShown]
    snapshots: Part[tuple[SnapshotStep, ...] | None]


@dataclass(frozen=True, slots=True)
class Connectors:
    """Every connector, those that FAILED first, and the chosen one; what could not be looked at."""

    connectors: tuple[ConnectorLine, ...]
    detail: Detail | None
    problems: tuple[Problem, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The connectors with a part that FAILED."""
        return tuple(one.connector.name for one in self.connectors if one.connector.failed)


def connectors(look: Look, query: Query) -> Connectors:
    """List the connectors, and look at the one that the query names. Raises NotFound for one that Connect lacks."""
    look.start(CONNECTORS, SLOTS)
    part, slots = look.part(CONNECTORS), look.part(SLOTS)
    own: Mapping[str, ReplicationSlot] = slots.value or {}
    states = sorted(part.value or (), key=lambda one: (not one.failed, one.healthy, one.name))
    lines = tuple(ConnectorLine(one, own.get(one.name), look.trend(f"slot {one.name}")) for one in states)
    problems = [part.problem, None if slots.problem == part.problem else slots.problem]
    name = query.get("name") if part.value is not None else None
    detail = None if name is None else _detail(look, lines, name)
    return Connectors(lines, detail, tuple(one for one in problems if one is not None))


def _detail(look: Look, lines: tuple[ConnectorLine, ...], name: str) -> Detail:
    match = next((one for one in lines if one.connector.name == name), None)
    line = chosen(match, f"there is no connector {name[:80]!r}")
    look.start(HEALTH.of(name), SNAPSHOTS.of(name))
    return Detail(line, look.part(HEALTH.of(name)), look.part(SNAPSHOTS.of(name)))


@contextmanager
def _patient(sources: Sources) -> Iterator[ConnectClient]:
    """A client that waits for rebalances, which that of the pages does not. Raises NotConfigured."""
    with worker(sources.clients.connect.url, patience=ACTION_SECONDS) as client:
        yield client


def _restart(sources: Sources, fields: Query) -> Outcome:
    with _patient(sources) as client:
        return _restarted(sources, client, required(fields, "name"))


def _restarted(sources: Sources, client: ConnectClient, name: str) -> Outcome:
    source, notes = of_its_own(sources.clients.source, client.config(name))
    return _outcome(cdc.restart(client, name, source=source, timeout=ACTION_SECONDS), "restarted", *notes)


def _restart_failed(sources: Sources, fields: Query) -> Outcome:
    """Restart each connector with a part that FAILED; one that does not come up does not hold the others back."""
    lines, restarted = list[str](), 0
    with _patient(sources) as client:
        failed = [name for name, (_, status) in client.overview().items() if status.failure is not None]
        for name in failed:
            try:
                lines.append(_restarted(sources, client, name).text)
                restarted += 1
            except CdcError as error:
                lines.append(f"{name}: {error.message}; remedy: {error.remedy}")
    said = f"restarted {restarted} of {len(failed)} connectors that had FAILED" if failed else "no connector has FAILED"
    return Outcome(said, done=restarted == len(failed), details=lines)


def _move(state: str, did: str) -> Callable[[Sources, Query], Outcome]:
    def run(sources: Sources, fields: Query) -> Outcome:
        name = required(fields, "name")
        with _patient(sources) as client:
            return _outcome(cdc.move(client, name, state, timeout=ACTION_SECONDS), did)  # type: ignore[arg-type]

    return run


def _outcome(status: ConnectorStatus, did: str, *notes: str) -> Outcome:
    return Outcome(f"{did} {status.name}: {status.summary()}", details=(*causes_of(status), *notes))


PAGE: Final = Page(
    "connectors",
    "Connectors",
    connectors,
    actions={
        "restart": Action("restart", _restart, audited=("name",)),
        "restart-failed": Action("restart-failed", _restart_failed),
        "pause": Action("pause", _move("PAUSED", "paused"), audited=("name",)),
        "resume": Action("resume", _move("RUNNING", "resumed"), audited=("name",)),
    },
)
