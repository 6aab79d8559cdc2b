"""The topics of what a service declares, and what of it reads which events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventstore import Subscription
    from factfold.cli.events.store import StoreStanding
    from factfold.discovery import Discovery


def topics_of(definitions: Discovery, store: StoreStanding | None) -> dict[str, str]:
    """Return the topic of each category, as the store has it; what it does not have yet as its definitions say."""
    tables = (table for group in definitions.groups.values() for table in group.tables.values())
    events = (table for table in tables if getattr(table, "aggregate", None) is not None)
    declared = {table.aggregate.category: table.topic for table in events}  # type: ignore[attr-defined]
    return declared | ({one.name: one.topic for one in store.categories} if store else {})


@dataclass(frozen=True, slots=True)
class ReadBy:
    """A part of the service that takes events of a type."""

    kind: str
    name: str
    target: str


def readers_of(definitions: Discovery, topics: Mapping[str, str], name: str) -> Iterator[ReadBy]:
    """Yield what takes events of a type: groups, branches, subscriptions, processes."""
    category = name.rpartition(".")[0]
    come_by = {topics.get(category, category)}
    for target, group in definitions.groups.items():
        for table, declared in group.tables.items():
            if _takes(declared, name, category):
                yield ReadBy("group", f"{group.name}.{table}", target)
    for target, branches in definitions.branches.items():
        if branches.aggregate.category == category:
            come_by |= set(branches.topics.values())
            yield ReadBy("branches", branches.topic, target)
    for target, one in definitions.subscriptions.items():
        if _handles(one, name, come_by):
            yield ReadBy("subscription", one.group, target)
    for target, process in definitions.processes.items():
        if name in process.reactions.kinds:
            yield ReadBy("process", process.category, target)


def _handles(one: Subscription[..., Any], name: str, topics: Collection[str]) -> bool:
    """Whether a handler takes a type: it names it, or takes every event and reads a topic that the type comes by."""
    if one.signature.types is not None:
        return name in one.signature.types
    return not set(one.chosen(topics)).isdisjoint(topics)


def _takes(table: Any, name: str, category: str) -> bool:
    """Whether a table is made of a type: of some types of its aggregate, or of all of them."""
    aggregate, events = getattr(table, "aggregate", None), getattr(table, "events", None)
    if aggregate is None or aggregate.category != category:
        return False
    return events is None or name in {kind.name for kind in events}
