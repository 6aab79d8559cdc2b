"""Overview: each group, connector, subscription, branch, process and the store; what is wrong comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from factfold.console.page import FIRST, Figure, Page, Query, figures
from factfold.console.pages.connectors import CONNECTORS, SLOTS, ConnectorState
from factfold.console.pages.letters import OPEN_COUNTS, HomeLine
from factfold.console.pages.standing import BRANCHES, GROUPS, RELAY, STORE, BranchesState, GroupState
from factfold.console.pages.subscriptions import PROCESSES, SUBSCRIPTIONS, ProcessState, SubscriptionState
from factfold.console.parts import Part, Problem, Trend
from factfold.console.sources import Look, Reading

if TYPE_CHECKING:
    from cdc.source.catalogue import ReplicationSlot
    from eventstore.relay import RelayStatus
    from factfold.cli.events.store import StoreStanding

Health = Literal["failed", "late", "unknown", "healthy"]

WATCHED: Final[tuple[Reading[Any], ...]] = (
    GROUPS, CONNECTORS, SLOTS, SUBSCRIPTIONS, BRANCHES, PROCESSES, STORE, RELAY, OPEN_COUNTS,
)  # fmt: skip
"""The parts of the overview; they are sampled while no page is open."""

LATE_SECONDS: Final = 60.0
"""A reader that is behind for longer is shown as late."""

_LOOKS: Final = 3  # at a figure that may not move although nothing is wrong

LATE_BYTES: Final = 1 << 30
"""A connector whose slot is behind by more, and does not catch up, is shown as late."""

_ENDANGERED: Final = ("unreserved", "lost")

_ORDER: Final = ("failed", "late", "unknown", "healthy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One thing that runs: how it is, how far it is behind, and what to do about it.

    What waits is counted in `records`, or for a connector measured in `bytes` of the log behind its slot.
    """

    kind: str
    name: str
    health: Health
    says: str
    records: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    trend: Trend = field(default_factory=Trend)
    cause: str | None = None
    remedy: str | None = None
    page: str = FIRST
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Empty:
    """A kind of which nothing is shown, and why."""

    kind: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Overview:
    """What runs, the worst first; charts of the chosen one; kinds without anything; modules that cannot be imported."""

    watched: tuple[Watched, ...]
    empty: tuple[Empty, ...]
    problems: tuple[Problem, ...]
    figures: tuple[Figure, ...] = ()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many things are in which health."""
        return {health: sum(one.health == health for one in self.watched) for health in _ORDER}


def overview(look: Look, query: Query) -> Overview:
    """Look at everything side by side."""
    look.start(*WATCHED)
    watched: list[Watched] = []
    empty: list[Empty] = []
    for kind, reading, rows, command in _KINDS:
        part: Part[Any] = look.part(reading)
        lines = list(rows(look, part.value)) if part.value is not None else []
        watched += lines
        if part.problem is not None:
            empty.append(Empty(kind, part.problem))
        elif not lines and command:
            empty.append(Empty(kind, Problem(f"there is no {kind}", command)))
    watched.sort(key=lambda one: (_ORDER.index(one.health), -(one.seconds or 0.0), one.kind, one.name))
    charts = figures(look, query.get("kind", ""), query.get("name", ""))
    problems = (
        Problem(f"module {module} cannot be imported: {cause}", "correct it, then restart the console", module)
        for module, cause in look.definitions.failures.items()
    )
    return Overview(tuple(watched), tuple(empty), tuple(problems), charts)


def _groups(look: Look, groups: Iterable[GroupState]) -> Iterator[Watched]:
    for group in groups:
        health, says, cause, remedy = _group_health(group)
        row: Mapping[str, Any] = group.serving or {}
        lag = row.get("lag")
        yield Watched(
            kind="group", name=group.name, health=health, says=says, cause=cause, remedy=remedy,
            records=None if lag is None else sum(lag.values()), seconds=row.get("lag_seconds"),
            trend=look.trend(f"group {group.name}"), page="view", query={"group": group.name},
        )  # fmt: skip


Judged = tuple[Health, str, str | None, str | None]


def _group_health(group: GroupState) -> Judged:
    target, row = group.target or "MODULE:GROUP", group.serving
    if row is None:
        building = group.of_status("building")
        if building is not None and building["holder"]:
            return "late", "first rebuild runs", None, None
        return "failed", "nothing serves", "no generation of the group serves", f"factfold projections rebuild {target}"
    if row["paused"]:
        return "late", "paused", None, f"factfold projections resume {group.name}"
    if row["holder"] is None:
        return "failed", "no runner", "no process applies changes", f"factfold projections run {target}"
    if group.changed:
        return _other_definition(group, row, target)
    if row["lag_seconds"] is None and row["lag"] is None:
        return "unknown", "runs", row.get("lag_problem"), None
    return ("late" if (row["lag_seconds"] or 0.0) > LATE_SECONDS else "healthy"), "runs", None, None


def _other_definition(group: GroupState, row: Mapping[str, Any], target: str) -> Judged:
    """Another definition serves than the console has: it is the older one, or the console's code is."""
    serving, own = row["version"], group.version or 0
    if serving > own:
        cause = f"version {serving} serves, and the code that the console has is version {own}"
        return "unknown", "newer definition", cause, "start the console again with the code that is deployed"
    which = "an older" if serving < own else "another"
    return "late", "definition changed", f"{which} definition serves", f"factfold projections rebuild {target}"


def _connectors(look: Look, connectors: Iterable[ConnectorState]) -> Iterator[Watched]:
    slots = look.part(SLOTS)
    for one in connectors:
        slot, trend = (slots.value or {}).get(one.name), look.trend(f"slot {one.name}")
        health, cause, remedy = _connector_health(one, slot, trend, slots.problem)
        yield Watched(
            kind="connector", name=one.name, health=health, says=_states(one), cause=cause, remedy=remedy,
            bytes=slot.lag_bytes if slot else None, trend=trend, page="connectors", query={"name": one.name},
        )  # fmt: skip


def _connector_health(
    one: ConnectorState, slot: ReplicationSlot | None, trend: Trend, unread: Problem | None
) -> tuple[Health, str | None, str | None]:
    """What Connect says comes first, then what the slot says: a connector may run and be behind."""
    if not one.healthy:
        remedy = f"factfold cdc {'restart' if one.failed else 'resume'} {one.name}"
        return "failed" if one.failed else "late", one.causes[-1] if one.causes else None, remedy
    if slot is None:
        return ("unknown", unread.cause, unread.remedy) if one.slot and unread else ("healthy", None, None)
    if slot.wal_status in _ENDANGERED:
        cause = f"slot {slot.name} is {slot.wal_status}: changes will be missing"
        return "failed" if slot.wal_status == "lost" else "late", cause, "factfold cdc doctor"
    if (slot.lag_bytes or 0) > LATE_BYTES and trend.direction != "falling":
        return "late", f"slot {slot.name} is behind", f"factfold cdc status {one.name}"
    return "healthy", None, None


def _states(one: ConnectorState) -> str:
    tasks = ", ".join(f"task {task.id} {task.state}" for task in one.tasks) or "no task"
    return f"{one.state}, {tasks}"


def _subscriptions(look: Look, subscriptions: Iterable[SubscriptionState]) -> Iterator[Watched]:
    for one in subscriptions:
        late = one.lag is not None and one.lag.seconds > LATE_SECONDS
        health: Health = "unknown" if one.lag is None else "late" if late else "healthy"
        # Without Kafka the parts of a service read the store together, in the processes that `up` starts.
        start = f"factfold subscriptions run {one.target}" if look.places.kafka else "factfold up PACKAGE"
        yield Watched(
            kind="subscription", name=one.group, health=health, says=f"reads {one.reads}",
            records=one.lag.records if one.lag else None, seconds=one.lag.seconds if one.lag else None,
            trend=look.trend(f"subscription {one.group}"), cause=one.problem.cause if one.problem else None,
            remedy=one.problem.remedy if one.problem else start if late else None,
            page="subscriptions", query={"group": one.group},
        )  # fmt: skip


def _branches(look: Look, branches: Iterable[BranchesState]) -> Iterator[Watched]:
    for one in branches:
        trend = look.trend(f"branches {one.topic}")
        late = bool(one.lag) and (trend.direction == "rising" or _stands(look.trend(f"routed {one.topic}")))
        health: Health = "unknown" if one.routed and one.lag is None else "late" if late else "healthy"
        says = f"{len(one.branches)} branches" + ("" if one.routed else ", read from the store without a router")
        problem = one.problem or (
            Problem("it does not catch up", f"factfold branches run {one.target}") if late else None
        )
        yield Watched(
            kind="branches", name=one.topic, health=health, says=says, records=one.lag, trend=trend,
            cause=problem.cause if problem else None, remedy=problem.remedy if problem else None,
            query={"kind": "branches", "name": one.topic},
        )  # fmt: skip


def _stands(figure: Trend) -> bool:
    """Whether a figure was looked at some times, and did not move: what is on its way is no sign that nobody routes."""
    newest = figure.samples[-_LOOKS:]
    return len(newest) == _LOOKS and len(set(newest)) == 1


def _processes(look: Look, processes: Iterable[ProcessState]) -> Iterator[Watched]:
    for one in processes:
        problem = _problem_of(one)
        health: Health = "failed" if one.scheduled.set_aside else "late" if problem else "healthy"
        yield Watched(
            kind="process", name=one.name, health=health,
            says=f"{one.instances:,} instance{'' if one.instances == 1 else 's'}",
            records=len(one.stuck), seconds=one.scheduled.overdue or None, trend=look.trend(f"process {one.name}"),
            cause=problem.cause if problem else None, remedy=problem.remedy if problem else None,
            page="subscriptions", query={"process": one.name},
        )  # fmt: skip


def _problem_of(one: ProcessState) -> Problem | None:
    """What was set aside comes first, then what is overdue: without a runner each instance is stuck some time later."""
    if one.scheduled.set_aside:
        cause = f"{one.scheduled.set_aside:,} commands or timers were set aside"
        return Problem(cause, f"factfold processes list {one.name} --stuck 1h, then factfold processes retry")
    if one.scheduled.overdue > LATE_SECONDS:
        return Problem("timers or commands are overdue", f"factfold processes run {one.target or 'MODULE:PROCESS'}")
    if one.stuck:
        cause = f"{len(one.stuck)} stuck, {one.stuck[0].instance} for the longest"
        return Problem(cause, f"factfold processes list {one.name} --stuck 1h")
    return None


def _letters(look: Look, counts: Iterable[HomeLine]) -> Iterator[Watched]:
    for one in counts:
        yield Watched(
            kind="dead letters", name=" ".join(filter(None, (one.home.topic, one.home.group))), health="failed",
            says=f"{one.open:,}{' or more' if one.more else ''} to settle", records=one.open, cause=one.cause,
            remedy=f"factfold dlq list {one.home.command}", page="letters", query={"home": one.home.key},
        )  # fmt: skip


def _store(look: Look, store: StoreStanding) -> Iterator[Watched]:
    fence = store.fence
    if fence is None:
        return
    late = (fence.age or 0.0) > LATE_SECONDS
    yield Watched(
        kind="store", name="event store", health="late" if late else "healthy",
        says=f"{len(store.categories)} categories, version {store.version.installed}",
        records=fence.waiting, seconds=fence.age,
        cause=f"a transaction is open since then: {fence.holder}" if late else None,
        remedy="end the transaction: readers wait for it" if late else None, page="stream",
    )  # fmt: skip


def _relay(look: Look, relay: RelayStatus) -> Iterator[Watched]:
    late: Health = "late" if relay.seconds > LATE_SECONDS else "healthy"
    cause, remedy = (None, None) if relay.leader else ("no process publishes events", "factfold relay run")
    yield Watched(
        kind="relay", name="relay", health=late if relay.leader else "failed", says=relay.leader or "no relay leads",
        records=relay.events, seconds=relay.seconds, trend=look.trend("relay relay"), cause=cause, remedy=remedy,
        query={"kind": "relay", "name": "relay"},
    )  # fmt: skip


_Rows = Callable[[Look, Any], Iterator[Watched]]

_KINDS: Final[tuple[tuple[str, Reading[Any], _Rows, str], ...]] = (
    ("group", GROUPS, _groups, "factfold console PACKAGE"),
    ("connector", CONNECTORS, _connectors, "factfold cdc apply connectors.toml"),
    ("subscription", SUBSCRIPTIONS, _subscriptions, "factfold console PACKAGE"),
    ("branches", BRANCHES, _branches, "factfold console PACKAGE"),
    ("process", PROCESSES, _processes, "factfold console PACKAGE"),
    ("store", STORE, _store, "factfold store migrate"),
    ("relay", RELAY, _relay, ""),
    ("dead letters", OPEN_COUNTS, _letters, ""),
)

PAGE: Final = Page("overview", "Overview", overview)
