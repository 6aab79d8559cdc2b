"""Connectors held against their source and worker; topics and event types held against what fills and reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import cdc
import eventstore
from cdc.findings import Severity
from factfold import on_demand
from factfold.cli.cdc.connectors import PATIENCE, declared, maybe_database, of_its_own, worker
from factfold.cli.events.store import store_standing
from factfold.console.definitions import readers_of, topics_of
from factfold.preflight.findings import Checked, Finding, Level

if TYPE_CHECKING:
    from cdc.findings import Finding as Diagnosed
    from projections.declaring.branches import Branches

_LEVELS: Final = {Severity.ERROR: Level.RED, Severity.WARNING: Level.YELLOW}
# The sides of connectors. A finding of `diagnose_connector` that has such a name says that the side did not answer.
_SIDES: Final = {
    "worker": "--connect-url", "source": "--source-url", "topics": "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS",
    "models": "--source-url",
}  # fmt: skip


def connectors(checked: Checked) -> Iterator[Finding]:
    """Every connector can work as it is declared, and its source has what the models need."""
    if checked.connectors is None:
        if not checked.is_embedded:
            yield Finding(Level.UNKNOWN, "connectors", "no declaration is named", "give --connectors")
        return
    places, opened = checked.places, checked.opened
    for side, place in (("worker", places.connect_url), ("source", places.source_url), ("topics", places.kafka)):
        if not place:
            yield Finding(Level.UNKNOWN, f"{side} of connectors", "no address is named", f"give {_SIDES[side]}")
    client = None if places.connect_url is None else opened.enter_context(worker(places.connect_url, patience=PATIENCE))
    if (source := opened.enter_context(maybe_database(places.source_url))) is not None:
        on_demand.refuse_writes(source)
    settings = eventstore.Settings() if places.kafka else None
    models = [model for group in checked.definitions.groups.values() for model in on_demand.captured_models(group)]
    for connector in declared(checked.connectors):
        own, notes = of_its_own(source, connector.config())
        for note in notes:
            yield Finding(Level.UNKNOWN, f"connector {connector.name}", note, f"give {_SIDES['source']} of it")
        found = cdc.diagnose_connector(connector, source=own, client=client, settings=settings, models=models)
        yield from _diagnosed(connector.name, found)


def _diagnosed(name: str, found: Iterable[Diagnosed]) -> Iterator[Finding]:
    well = 0
    for one in found:
        level = _LEVELS.get(one.severity)
        if level is None:
            well += 1
            continue
        silent = one.check in _SIDES
        code = "not-reached" if silent else "connector-unfit"
        yield Finding(
            Level.YELLOW if silent else level, f"connector {name}", f"{one.check}: {one.result}", one.remedy, code
        )
    yield Finding(Level.GREEN, f"connector {name}", f"{well} checks found nothing")


def delivery(checked: Checked) -> Iterator[Finding]:
    """Each topic that is read is filled, and each event type that comes is handled."""
    definitions, store = checked.definitions, checked.store
    topics = topics_of(definitions, None if store is None else store_standing(store))
    comes_by = {one.category: {topics.get(one.category, one.category)} for one in definitions.aggregates.values()}
    for branches in definitions.branches.values():
        comes_by.setdefault(branches.aggregate.category, set()).update({branches.topic, *branches.topics.values()})
    views = {name for group in definitions.groups.values() for name in group.filled}
    yield from _unfilled(checked, {*views, *(name for names in comes_by.values() for name in names)})
    yield from _deaf(checked, comes_by)
    yield from _unhandled(checked, topics)
    for branches in definitions.branches.values():
        yield from _unread(checked, branches)
    yield Finding(Level.GREEN, "delivery", f"{len(definitions.subscriptions)} subscriptions looked at")


def _unfilled(checked: Checked, filled: set[str]) -> Iterator[Finding]:
    """Topics that subscriptions name, and nothing here fills: another service may."""
    named = {topic: one for one in checked.definitions.subscriptions.values() for topic in one.topics}
    foreign = sorted(named.keys() - filled)
    if foreign and not checked.places.kafka:
        yield Finding(
            Level.UNKNOWN, f"topics {', '.join(foreign)}", "nothing here fills them", f"give {_SIDES['topics']}"
        )
        return
    if foreign:
        with on_demand.OffsetReader(eventstore.Settings(), deadline=3.0) as reader:
            foreign = sorted({*foreign} - {*reader.names()})
    for topic in foreign:
        cause = f"subscription {named[topic].group} reads it, nothing here fills it, and the brokers do not have it"
        yield Finding(
            Level.YELLOW, f"topic {topic}", cause, "correct the name, or deploy what fills it", "topic-unfilled"
        )


def _deaf(checked: Checked, comes_by: dict[str, set[str]]) -> Iterator[Finding]:
    """Handlers of types that come by none of the topics that they read."""
    for one in checked.definitions.subscriptions.values():
        for name in one.signature.types or ():
            by = comes_by.get(name.rpartition(".")[0])
            if by is not None and by.isdisjoint(one.chosen(by)):
                cause = f"it handles {name}, which comes by {', '.join(sorted(by))} and not by {one.reads}"
                yield Finding(
                    Level.YELLOW, f"subscription {one.group}", cause, "correct its topics", "type-not-produced"
                )


def _unhandled(checked: Checked, topics: dict[str, str]) -> Iterator[Finding]:
    """Event types that nothing reads, of aggregates of which others are read."""
    for aggregate in checked.definitions.aggregates.values():
        readers = {name: readers_of(checked.definitions, topics, name) for name in aggregate.event_types}
        read = {name: any(one.kind != "branches" for one in by) for name, by in readers.items()}
        for name in read if any(read.values()) else ():
            if not read[name]:
                cause = "no view, subscription or process reads it, and other events of its aggregate are read"
                yield Finding(
                    Level.YELLOW, f"event type {name}", cause, "handle it where it counts", "type-not-handled"
                )


def _unread(checked: Checked, branches: Branches) -> Iterator[Finding]:
    """Branches that nothing reads, of a topic of which others are read."""
    subscriptions, groups = checked.definitions.subscriptions.values(), checked.definitions.groups.values()
    own = branches.topics.values()
    read = {topic for one in subscriptions for topic in one.chosen(own)} | {
        one for group in groups for one in group.topics
    }
    for name, topic in branches.topics.items():
        if topic not in read and name != branches.otherwise and not read.isdisjoint(own):
            cause = "nothing here reads it, and other branches of the topic are read"
            yield Finding(
                Level.YELLOW, f"topic {topic}", cause, "subscribe to it, or leave the branch out", "branch-unread"
            )
