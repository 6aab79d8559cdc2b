"""Subscriptions and processes: lag, members, reset after a look; what waits for what, stuck instances, timers.

With Kafka a group's offsets say how far it is behind, without Kafka the checkpoint that a subscriber of the store has.

Processes as the event store has them: what `processes stats` and `processes list` print.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from eventstore.backends.sql.changes import ScheduledStanding, standing_of_processes
from eventstore.backends.sql.source import stored_lag
from eventstore.deadletters.letters import pattern_of
from eventstore.errors import FactfoldError, InvalidArgument, NotFound
from eventstore.fields.conversions import aware_utc
from eventstore.fields.plain_json import load_plain
from eventstore.identifiers import StreamName
from eventstore.inbox import Inbox
from eventstore.processes.administration import Processes
from eventstore.processes.records import ENDED
from eventstore.scheduling import Schedule
from eventstore.topics import retry_topic_of
from factfold import on_demand
from factfold.cli.events.subscriptions import parse_start
from factfold.cli.service.processes import status_as_json
from factfold.console import page
from factfold.console.page import Action, Figure, Outcome, Page, Query, chosen, declared, figures, required
from factfold.console.parts import Part, Problem, Trend
from factfold.console.sources import Clients, Look, Reading, Sources
from projections.letter_homes import HomeKind

if TYPE_CHECKING:
    from eventstore import Subscription
    from eventstore.backends.sql.process_rows import Scheduled
    from eventstore.delivery.source import Lag
    from eventstore.kafka.groups import GroupStanding, Move
    from eventstore.processes import Process
    from eventstore.processes.administration import InstanceStatus, ProcessCount

STUCK_AFTER: Final = timedelta(hours=1)
SHOWN: Final = 50  # instances on a page
_LIMIT: Final = 200
TROUBLED_READ: Final = 5_000  # instances with a problem that are looked at, and retried by one form
_CAUSES: Final = 20
_STEPS: Final = 100
_TEXTS: Final = ("data", "state", "arguments", "undo_arguments")  # of a step: plain values, written as text


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process, declared or with instances: how many have which status, and those that are stuck.

    `scheduled` is how its timers and commands stand.
    """

    name: str
    target: str | None
    counts: Sequence[ProcessCount]
    stuck: Sequence[InstanceStatus]
    scheduled: ScheduledStanding

    @property
    def instances(self) -> int:
        """How many instances there are."""
        return sum(count.instances for count in self.counts)


def read_processes(clients: Clients) -> tuple[ProcessState, ...]:
    """Return every process of the store and of the definitions, by name."""
    processes, scheduled = Processes(clients.store), standing_of_processes(clients.store)
    counts, stuck = processes.stats(), processes.instances(stuck=STUCK_AFTER, limit=_LIMIT)
    targets = {kind.category: target for target, kind in clients.definitions.processes.items()}
    names = sorted(targets.keys() | {count.process for count in counts})
    for name in names:
        clients.trends.note(f"process {name}", float(sum(one.process == name for one in stuck)))
    return tuple(
        ProcessState(
            name,
            targets.get(name),
            tuple(count for count in counts if count.process == name),
            tuple(one for one in stuck if one.process == name),
            scheduled.get(name, ScheduledStanding(0.0, 0)),
        )
        for name in names
    )


@dataclass(frozen=True, slots=True)
class Instances:
    """Instances of a process, those that stand still for the longest first; `next` is the place to go on from."""

    instances: Sequence[Mapping[str, Any]]
    next: str | None


@dataclass(frozen=True, slots=True)
class InstanceShown:
    """One instance as `factfold processes show --json` prints it, its last steps in the order of time."""

    status: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    more: bool
    ended: bool


def read_instances(clients: Clients, process: str, ended: bool, part: str, after: str | None) -> Instances:
    """Return instances of a process that have not ended, or all; those with a part of an id, behind a place."""
    place = None if after is None else _place(after)
    found = Processes(clients.store).instances(process, ended=ended, limit=SHOWN + 1, part=part, after=place)
    last = found[SHOWN - 1] if len(found) > SHOWN else None
    shown = tuple(status_as_json(one) for one in found[:SHOWN])
    return Instances(shown, f"{last.stepped.isoformat()}/{last.instance}" if last else None)


def _place(text: str) -> tuple[datetime, str]:
    """Return the place behind an instance, such as `2026-11-26T12:00:00+00:00/o1`. Raises InvalidArgument."""
    moment, _, instance = text.partition("/")
    try:
        return aware_utc(datetime.fromisoformat(moment)), instance
    except (ValueError, FactfoldError):
        raise InvalidArgument(f"{text[:80]!r} is no place in the list", remedy="begin with the first page") from None


def read_troubled(clients: Clients, process: str) -> tuple[tuple[str, int], ...]:
    """Return what keeps instances of a process from going on, each with how many it keeps, the most frequent first."""
    troubled = Processes(clients.store).troubled(process, limit=TROUBLED_READ)
    return tuple(Counter(pattern_of(one.problem) for one in troubled).most_common(_CAUSES))


def read_instance(clients: Clients, process: str, instance: str) -> InstanceShown:
    """Return an instance with its last steps. Raises ProcessError."""
    status = Processes(clients.store).show(process, instance)
    steps = clients.store.read_stream(StreamName(process, instance), backwards=True, limit=_STEPS + 1)
    opened = [{"version": step.version, "time": step.time, **opened_step(step.data)} for step in steps]
    return InstanceShown(
        status_as_json(status), opened[:_STEPS][::-1], more=len(opened) > _STEPS, ended=status.status in ENDED
    )


def opened_step(value: Any) -> Any:
    """Return what a step of a process recorded, with the values that it holds as text."""
    if isinstance(value, Mapping):
        return {
            name: load_plain(one) if name in _TEXTS and isinstance(one, str) else opened_step(one)
            for name, one in value.items()
        }
    return [opened_step(one) for one in value] if isinstance(value, list) else value


def read_own_categories(clients: Clients) -> tuple[str, ...]:
    """Return the categories of the steps of processes."""
    declared = {kind.category for kind in clients.definitions.processes.values()}
    return tuple(sorted(declared | {count.process for count in Processes(clients.store).stats()}))


PROCESSES: Final = Reading(read_processes)
INSTANCES: Final = Reading(read_instances)
INSTANCE: Final = Reading(read_instance)
OWN_CATEGORIES: Final = Reading(read_own_categories)
TROUBLED: Final = Reading(read_troubled, rest=5.0)
SCHEDULED: Final = Reading(lambda clients: tuple(Schedule(clients.store).pending(limit=_LIMIT)))
"""Commands that were scheduled without a process, those set aside first."""


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """A subscription: what it reads, and how far it is behind; None where that is unknown, with the reason."""

    group: str
    name: str
    target: str
    guarantee: str
    topics: tuple[str, ...]
    reads: str
    shared: bool
    lag: Lag | None = None
    problem: Problem | None = None


def read_subscriptions(clients: Clients) -> tuple[SubscriptionState, ...]:
    """Return every declared subscription."""
    declared = clients.definitions.subscriptions
    if clients.places.kafka:
        states = _of_kafka(clients, declared)
    else:
        states = tuple(_in_store(clients, target, one) for target, one in declared.items())
    for one in states:
        clients.trends.note(f"subscription {one.group}", None if one.lag is None else one.lag.seconds)
        clients.trends.note(f"subscription {one.group} waiting", None if one.lag is None else float(one.lag.records))
    return states


def _of_kafka(clients: Clients, declared: Mapping[str, Subscription[..., Any]]) -> tuple[SubscriptionState, ...]:
    existing = set(clients.offsets.names())
    chosen = {target: one.chosen(existing) for target, one in declared.items()}
    asked: dict[str, list[str]] = {}
    for target, one in declared.items():
        topics = [topic for topic in chosen[target] if topic in existing]
        retried = [retry_topic_of(topic, one.group) for topic in topics]
        asked.setdefault(one.group, []).extend([] if one.share else topics + [t for t in retried if t in existing])
    lags = on_demand.subscription_lags(clients.settings, asked)
    _note_handled(clients, asked, lags)
    return tuple(
        _state(target, one, chosen[target], lags[one.group], _missing(one, chosen[target], existing))
        for target, one in declared.items()
    )


def _note_handled(clients: Clients, asked: Mapping[str, list[str]], lags: Mapping[str, Lag]) -> None:
    """Note how many records each group has behind it: those of its topics without those that wait."""
    ends = clients.offsets.end_offsets({name for names in asked.values() for name in names})
    for group, names in asked.items():
        every = sum(end for name in names for end in ends[name].values())
        clients.trends.note(f"subscription {group} handled", float(every - lags[group].records))


def _missing(one: Subscription[..., Any], topics: Iterable[str], existing: set[str]) -> Problem | None:
    if one.share:
        return Problem("a queue has no offsets of its group", "look at its dead letters")
    missing = [topic for topic in topics if topic not in existing]
    if not missing:
        return None
    return Problem(f"topic {missing[0]} does not exist", "start what writes to it, or correct the subscription")


def _state(
    target: str, one: Subscription[..., Any], topics: Iterable[str], lag: Lag | None, problem: Problem | None
) -> SubscriptionState:
    return SubscriptionState(
        group=one.group, name=one.name, target=target, guarantee=one.guarantee, topics=tuple(topics), reads=one.reads,
        shared=one.share, lag=None if problem else lag, problem=problem,
    )  # fmt: skip


def _in_store(clients: Clients, target: str, one: Subscription[..., Any]) -> SubscriptionState:
    try:
        categories = _categories(clients, one)
        lag = stored_lag(clients.store, one.group, categories, engine=clients.database)
        return _state(target, one, categories.values(), lag, None)
    except FactfoldError as error:
        return _state(target, one, one.topics, None, Problem.of(error))


def _categories(clients: Clients, one: Subscription[..., Any]) -> dict[str, str]:
    """The category whose events a subscription takes, with the topic of each."""
    by_topic = {category.topic: category.name for category in clients.store.categories()}
    for branches in clients.definitions.branches.values():
        by_topic |= dict.fromkeys(branches.topics.values(), branches.aggregate.category)
    categories = {by_topic[topic]: topic for topic in one.chosen(by_topic) if topic in by_topic}
    if not categories:
        raise FactfoldError(
            f"no category of the event store is published as {one.reads}",
            remedy="append a first event, or set bootstrap_servers of [kafka] in factfold.toml",
        )
    return categories


SUBSCRIPTIONS: Final = Reading(read_subscriptions)


STANDING: Final = Reading(lambda clients, group: on_demand.group_standing(clients.settings, group))
"""The state of a group and its members."""
PLAN: Final = Reading(
    lambda clients, group, topic, to: on_demand.reset_plan(clients.settings, topic, group=group, to=parse_start(to))
)
"""What a reset would do to each partition of a topic."""


@dataclass(frozen=True, slots=True)
class Resetting:
    """What a reset would do: the next offset of each partition, now and afterwards."""

    topic: str
    to: str
    moves: Part[tuple[Move, ...]]

    @property
    def offsets(self) -> str:
        """The offsets that were shown, which are those that the form sets."""
        return ",".join(f"{move.partition}={move.to}" for move in self.moves.value or ())

    @property
    def again(self) -> int:
        """How many records come again."""
        return sum(max(0, move.now - move.to) for move in self.moves.value or () if move.now is not None)

    @property
    def passed_over(self) -> int:
        """How many records are never delivered."""
        return sum(max(0, move.to - (move.now or 0)) for move in self.moves.value or () if move.now is not None)


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One subscription: its lag by partition, its members, and a reset that is looked at."""

    subscription: SubscriptionState
    figures: tuple[Figure, ...]
    of_kafka: bool
    standing: Part[GroupStanding] | None
    letters: tuple[str, ...]
    resetting: Resetting | None


@dataclass(frozen=True, slots=True)
class ProcessDetail:
    """One process with its instances and what keeps some from going on, or one of them with its steps."""

    process: ProcessState
    troubled: tuple[tuple[str, int], ...]
    instances: Part[Instances] | None
    instance: Part[InstanceShown] | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Every subscription, process and scheduled command, and what was chosen; what could not be looked at."""

    subscriptions: tuple[SubscriptionState, ...]
    trends: Mapping[str, Trend]
    processes: tuple[ProcessState, ...]
    scheduled: tuple[Scheduled, ...]
    group: GroupDetail | None
    process: ProcessDetail | None
    problems: tuple[Problem, ...]


def subscriptions(look: Look, query: Query) -> Subscriptions:
    """List subscriptions, processes and scheduled commands, and look at what the query names. Raises NotFound."""
    look.start(SUBSCRIPTIONS, PROCESSES, SCHEDULED)
    groups, processes, scheduled = look.part(SUBSCRIPTIONS), look.part(PROCESSES), look.part(SCHEDULED)
    group, process = query.get("group"), query.get("process")
    states = groups.value or ()
    return Subscriptions(
        states, {one.group: look.trend(f"subscription {one.group}") for one in states}, processes.value or (),
        scheduled.value or (),
        None if group is None or groups.value is None else _group(look, groups.value, group, query),
        None if process is None or processes.value is None else _process(look, processes.value, process, query),
        page.problems_of(groups, processes, scheduled),
    )  # fmt: skip


def _group(look: Look, groups: tuple[SubscriptionState, ...], group: str, query: Query) -> GroupDetail:
    subscription = chosen(groups, group, "there is no subscription of group", by=lambda one: one.group)
    kafka = look.places.kafka and not subscription.shared
    resetting = _resetting(look, subscription, query) if kafka else None
    home = HomeKind.TOPIC if look.places.kafka else HomeKind.INBOX
    return GroupDetail(
        subscription=subscription, figures=figures(look, "subscription", group), of_kafka=kafka,
        standing=look.part(STANDING.of(group)) if kafka else None,
        letters=tuple(f"{home}:{topic}:{group}" for topic in subscription.topics), resetting=resetting,
    )  # fmt: skip


def _resetting(look: Look, subscription: SubscriptionState, query: Query) -> Resetting | None:
    topic, to = query.get("topic"), query.get("to", "").strip()
    if topic is None or not to:
        return None
    _require_topic(subscription, topic)
    parse_start(to)
    return Resetting(topic, to, look.part(PLAN.of(subscription.group, topic, to)))


def _require_topic(subscription: SubscriptionState, topic: str) -> None:
    if topic not in subscription.topics:
        raise NotFound(
            f"group {subscription.group!r} reads no topic {topic[:80]!r}", remedy=", ".join(subscription.topics)
        )


def _process(look: Look, processes: tuple[ProcessState, ...], name: str, query: Query) -> ProcessDetail:
    process = chosen(processes, name, "there is no process", by=lambda one: one.name)
    instance = query.get("instance") or None
    if instance is not None:
        return ProcessDetail(process, (), None, look.part(INSTANCE.of(name, instance)), instance)
    listed = INSTANCES.of(name, query.get("ended") == "1", query.get("find", "").strip(), query.get("after") or None)
    look.start(listed, TROUBLED.of(name))
    return ProcessDetail(process, look.part(TROUBLED.of(name)).value or (), look.part(listed), None, None)


def _reset(sources: Sources, fields: Query) -> Outcome:
    """Move a group to the offsets that were shown, and let its inbox forget if that was asked for."""
    group, topic = required(fields, "group"), required(fields, "topic")
    known, names = sources.definitions.subscriptions.values(), sources.clients.offsets.names()
    if not any(one.group == group and topic in one.chosen(names) for one in known):
        raise NotFound(f"group {group[:80]!r} with topic {topic[:80]!r} is not declared here", remedy="choose another")
    inbox = _inbox(sources, group) if fields.get("forget") else None
    moved = on_demand.reset_group(
        sources.clients.settings, topic, group=group, to=parse_start(required(fields, "offsets"))
    )
    lines = [f"{topic}[{partition}]: {offset}" for partition, offset in sorted(moved.items())]
    if inbox is not None:
        lines.append(f"{inbox.forget_all(topic):,} events forgotten by the inbox")
    return Outcome(f"group {group} moved in {topic}", details=lines)


def _inbox(sources: Sources, group: str) -> Inbox:
    database = sources.clients.database
    if database is None:
        raise InvalidArgument("the handlers' database is not configured", remedy="set inbox_url, or FACTFOLD_INBOX_URL")
    return Inbox(database, group)


def _repair(act: Callable[[Processes, str, str], InstanceStatus], did: str) -> Callable[[Sources, Query], Outcome]:
    def run(sources: Sources, fields: Query) -> Outcome:
        name, instance = required(fields, "process"), required(fields, "instance")
        status = act(Processes(sources.clients.store, [_kind(sources, name)]), name, instance)
        lines = [f"waits for {status.waits_for}", *([f"problem: {status.problem}"] if status.problem else [])]
        return Outcome(f"{did} {name}-{instance}: it is {status.status}", details=lines)

    return run


def _retry_all(sources: Sources, fields: Query) -> Outcome:
    """Retry the instances with a problem, or those with the problem that is named; one that fails holds up no other."""
    name, cause = required(fields, "process"), fields.get("cause", "").strip()
    processes, lines = Processes(sources.clients.store, [_kind(sources, name)]), list[str]()
    troubled = processes.troubled(name, limit=TROUBLED_READ)
    chosen = [one.instance for one in troubled if not cause or pattern_of(one.problem) == cause]
    for instance in chosen:
        try:
            processes.retry(name, instance)
        except FactfoldError as error:
            lines.append(f"{instance}: {error.message}")
    return Outcome(f"retried {len(chosen) - len(lines):,} of {len(chosen):,} instances of {name}", not lines, lines)


def _kind(sources: Sources, name: str) -> type[Process]:
    kind = next((one for one in sources.definitions.processes.values() if one.category == name), None)
    return declared(kind, f"process {name[:80]!r}")


def _of_command(act: str, did: str) -> Callable[[Sources, Query], Outcome]:
    """Retry or cancel a command that was scheduled without a process."""

    def run(sources: Sources, fields: Query) -> Outcome:
        command = _command_id(required(fields, "command"))
        if getattr(Schedule(sources.clients.store), act)(command):
            return Outcome(f"{did} command {command}")
        return Outcome(f"command {command} was sent, or cancelled before, or did not fail", done=False)

    return run


def _command_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidArgument(f"{text[:40]!r} is no id of a command", remedy="choose one of the list") from None


_INSTANCE: Final = ("process", "instance")

PAGE: Final = Page(
    "subscriptions",
    "Subscriptions",
    subscriptions,
    actions={
        "reset": Action(_reset, audited=("group", "topic", "offsets", "forget")),
        "retry": Action(_repair(lambda all_, name, one: all_.retry(name, one), "retried"), audited=_INSTANCE),
        "retry-all": Action(_retry_all, audited=("process", "cause")),
        "cancel": Action(_repair(lambda all_, name, one: all_.cancel(name, one), "cancelled"), audited=_INSTANCE),
        "cancel-only": Action(
            _repair(lambda all_, name, one: all_.cancel(name, one, compensate=False), "cancelled without undoing"),
            audited=_INSTANCE,
        ),
        "command-retry": Action(_of_command("retry", "is due now:"), audited=("command",)),
        "command-cancel": Action(_of_command("cancel", "cancelled"), audited=("command",)),
    },
)
