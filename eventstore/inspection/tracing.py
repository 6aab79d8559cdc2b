"""A conversation as a tree: which command led to which events, and which event to which commands.

    order.place                  a command
      order.placed               an event of it, in the order service
        payment.take             a command that was sent for this event
          payment.received       its event, in the payment service

A causation id is the id of the command. Behind it stand the command's name and the event that it was sent for, where
they are recorded: `eventstore.store.Cause`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from eventstore.errors import NotFound
from eventstore.inspection.selection import Entry, ReadLog, Selection
from eventstore.store import Cause


@dataclass(frozen=True, slots=True)
class Reaction:
    """What a subscription's group did with an event, as its inbox says: `outcome` is handled or dead."""

    group: str
    topic: str
    outcome: str
    time: datetime


class Inboxes(Protocol):
    """The inboxes of subscriptions, where events that were handled are known by their ids."""

    def reactions(self, ids: Sequence[UUID]) -> Mapping[UUID, Sequence[Reaction]]:
        """Return what became of events; nothing for an event that no inbox knows."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command or an event of a conversation, `depth` levels below its beginning.

    A command's `name` is None where its events do not record it. `missing_cause` is the id of the event that a command
    was sent for, or that an event follows from, where none of what was read holds it.
    """

    kind: Literal["command", "event"]
    id: str
    name: str | None
    parent: str | None
    depth: int = 0
    entry: Entry | None = None
    reactions: tuple[Reaction, ...] = ()
    missing_cause: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Every command and event of one correlation id, each behind what caused it."""

    correlation_id: str
    steps: tuple[Step, ...]

    @property
    def events(self) -> list[Entry]:
        """The events in the order of their times."""
        return sorted((step.entry for step in self.steps if step.entry is not None), key=lambda entry: entry.time)


def trace(correlation_id: str, logs: Iterable[ReadLog], *, inboxes: Iterable[Inboxes] = ()) -> Trace:
    """Read the events of a correlation id from stores and topics, and put each behind its cause.

    Args:
        correlation_id: The conversation.
        logs: Stores and topics. An event that several of them hold is taken from the first.
        inboxes: Inboxes of subscriptions, which say which events were handled.

    Raises:
        NotFound: No log holds an event of the conversation.

    Examples:
        >>> [(step.depth, step.kind, step.name) for step in trace("checkout-77", [StoreLog(store)]).steps]
        [(0, 'command', None), (1, 'event', 'order.placed')]
    """
    read = list(logs)
    selection = Selection(correlation_id=correlation_id)
    entries = _by_id(entry for log in read for entry in log.read(selection))
    if not entries:
        where = ", ".join(log.name for log in read) or "no store"
        raise NotFound(
            f"no event has the correlation id {correlation_id!r} in {where}",
            remedy="check the id, and name every store and topic that may hold its events: --store-url, --topic",
            place=correlation_id,
            code="events-not-found",
        )
    steps = _linked(entries)
    return Trace(correlation_id, tuple(_with_reactions(_in_order(steps), inboxes)))


def _by_id(entries: Iterable[Entry]) -> dict[str, Entry]:
    by_id: dict[str, Entry] = {}
    for entry in entries:
        if entry.event is not None:
            by_id.setdefault(str(entry.event.id), entry)
    return dict(sorted(by_id.items(), key=lambda item: _order(item[1])))


def _order(entry: Entry) -> tuple[object, ...]:
    event = entry.event
    return (event.time, event.stream, event.version) if event is not None else ()


def _linked(entries: Mapping[str, Entry]) -> dict[str, Step]:
    """Steps by kind and id, each with its parent; an event's id may be its command's id as well."""
    steps: dict[str, Step] = {}
    for event_id, entry in entries.items():
        if (event := entry.event) is None:
            continue
        cause = Cause.parse(event.metadata.causation_id)
        if cause is None:
            parent = None
        elif cause.name is None and cause.id in entries:  # appended by a handler, without a command
            parent = f"event {cause.id}"
        else:
            parent = f"command {cause.id}"
            steps.setdefault(parent, _command(cause, entries))
        steps[f"event {event_id}"] = Step("event", event_id, event.type, parent, entry=entry)
    return steps


def _command(cause: Cause, entries: Mapping[str, Entry]) -> Step:
    """A command of which only the events tell: it was sent for the event whose id they name, or that it has."""
    sent_for = cause.of or (cause.id if cause.id in entries else None)
    if sent_for is None or sent_for in entries:
        return Step("command", cause.id, cause.name, None if sent_for is None else f"event {sent_for}")
    return Step("command", cause.id, cause.name, None, missing_cause=sent_for)


def _in_order(steps: Mapping[str, Step]) -> list[Step]:
    """Every step once, depth first; where causes go round in a circle, it is entered at its first event."""
    children: dict[str | None, list[Step]] = {}
    for step in steps.values():
        children.setdefault(step.parent, []).append(step)
    ordered: dict[str, Step] = {}
    begins = [*children.get(None, ()), *steps.values()]
    for begin in begins:
        waiting = [(begin, 0)]
        while waiting:
            step, depth = waiting.pop()
            own = f"{step.kind} {step.id}"
            if own in ordered:
                continue
            ordered[own] = replace(step, depth=depth, parent=step.parent if depth else None)
            waiting.extend((child, depth + 1) for child in reversed(children.get(own, ())))
    return list(ordered.values())


def _with_reactions(steps: Sequence[Step], inboxes: Iterable[Inboxes]) -> list[Step]:
    ids = [step.entry.event.id for step in steps if step.entry is not None and step.entry.event is not None]
    known: dict[str, list[Reaction]] = {}
    for inbox in inboxes:
        for event_id, reactions in inbox.reactions(ids).items():
            own = known.setdefault(str(event_id), [])
            own += [one for one in reactions if one not in own]  # two inboxes may be one database
    return [
        replace(step, reactions=tuple(sorted(known.get(step.id, ()), key=lambda one: (one.time, one.group))))
        if step.kind == "event"
        else step
        for step in steps
    ]
