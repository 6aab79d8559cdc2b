"""Settings, packages, connectors, topics and event types, held against what they need or what reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

from packaging.requirements import Requirement

import cdc
import eventstore
from cdc.findings import Severity
from factfold import on_demand
from factfold.cli.cdc.connectors import PATIENCE, declared, maybe_database, of_its_own, worker
from factfold.cli.events.store import store_standing
from factfold.console.definitions import readers_of, topics_of
from factfold.discovery import Discovery
from factfold.preflight.findings import Checked, Finding, green, red, unknown, yellow

# The sides of connectors. A finding of `diagnose_connector` that has such a name says that the side did not answer.
_SIDES: Final = {
    "worker": "--connect-url", "source": "--source-url", "topics": "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS",
    "models": "--source-url",
}  # fmt: skip


def settings(checked: Checked) -> Iterator[Finding]:
    """Every setting is known, and has a value of its type."""
    eventstore.Settings()
    yield green("settings", "each is known and has a value of its type")


def versions(checked: Checked) -> Iterator[Finding]:
    """Every package that is installed has a version that this release works with."""
    for needed in map(Requirement, requires("factfold") or ()):
        with suppress(PackageNotFoundError):  # of an extra that the service does not use
            found = version(needed.name)
            if not needed.specifier.contains(found, prereleases=True):
                cause = f"{found} is installed, and Factfold {version('factfold')} needs {needed.specifier}"
                yield red(f"package {needed.name}", cause, f"install {needed.name}{needed.specifier}", "package-unfit")
    yield green("versions", f"packages looked at are those that Factfold {version('factfold')} needs")


def connectors(checked: Checked) -> Iterator[Finding]:
    """Every connector can work as it is declared, and its source has what the models need."""
    if checked.connectors is None:
        if not checked.is_embedded:
            yield unknown("connectors", "no declaration is named", "give --connectors")
        return
    places, opened = checked.places, checked.opened
    for side, place in (("worker", places.connect_url), ("source", places.source_url), ("topics", places.kafka)):
        if not place:
            yield unknown(f"{side} of connectors", "no address is named", f"give {_SIDES[side]}")
    client = None if places.connect_url is None else opened.enter_context(worker(places.connect_url, patience=PATIENCE))
    if (source := opened.enter_context(maybe_database(places.source_url))) is not None:
        on_demand.refuse_writes(source)
    settings = eventstore.Settings() if places.kafka else None
    models = [model for group in checked.definitions.groups.values() for model in on_demand.captured_models(group)]
    for connector in declared(checked.connectors):
        own, notes = of_its_own(source, connector.config())
        subject = f"connector {connector.name}"
        yield from (unknown(subject, note, f"give {_SIDES['source']} of it") for note in notes)
        found = cdc.diagnose_connector(connector, source=own, client=client, settings=settings, models=models)
        unwell = [one for one in found if one.severity is not Severity.OK]
        for one in unwell:
            silent = one.check in _SIDES
            level = yellow if one.severity is Severity.WARNING else red
            yield level(
                subject, f"{one.check}: {one.result}", one.remedy, "not-reached" if silent else "connector-unfit"
            )
        yield green(subject, f"{len(found) - len(unwell)} checks found nothing")


def delivery(checked: Checked) -> Iterator[Finding]:
    """Each topic that is read is filled, and each event type that comes is handled."""
    definitions, store = checked.definitions, checked.store
    topics = topics_of(definitions, None if store is None else store_standing(store))
    comes_by = {one.category: {topics.get(one.category, one.category)} for one in definitions.aggregates.values()}
    for category in comes_by if checked.is_embedded else ():
        comes_by[category].add(category)  # by which a subscription that reads the store itself may name it
    for branches in definitions.branches.values():
        comes_by.setdefault(branches.aggregate.category, set()).update({branches.topic, *branches.topics.values()})
    yield green("delivery", f"{len(definitions.subscriptions)} subscriptions and {len(comes_by)} categories looked at")
    yield from _unhandled(definitions, topics)
    yield from _unread(definitions)
    yield from _unproduced(definitions, comes_by)
    yield from _unfilled(checked, set().union(*comes_by.values(), *(one.filled for one in definitions.groups.values())))


def _unhandled(definitions: Discovery, topics: Mapping[str, str]) -> Iterator[Finding]:
    """Event types that nothing reads, of aggregates of which others are read."""
    cause = "no view, subscription or process reads it, and other events of its aggregate are read"
    for aggregate in definitions.aggregates.values():
        readers = {name: readers_of(definitions, topics, name) for name in aggregate.event_types}
        read = {name for name, by in readers.items() if any(one.kind != "branches" for one in by)}
        for name in sorted(readers.keys() - read) if read else ():
            yield yellow(f"event type {name}", cause, "handle it where it counts", "type-not-handled")


def _unread(definitions: Discovery) -> Iterator[Finding]:
    """Branches that nothing reads, of a topic of which others are read."""
    cause = "nothing here reads it, and other branches of the topic are read"
    for branches in definitions.branches.values():
        own = branches.topics
        read = {topic for one in definitions.subscriptions.values() for topic in one.chosen(own.values())}
        read.update(*(group.topics for group in definitions.groups.values()))
        for name in branches.predicates if read & {*own.values()} else ():
            if own[name] not in read:
                yield yellow(f"topic {own[name]}", cause, "subscribe to it, or leave the branch out", "branch-unread")


def _unproduced(definitions: Discovery, comes_by: Mapping[str, set[str]]) -> Iterator[Finding]:
    """Types that a handler takes, and that come by none of its topics."""
    for one in definitions.subscriptions.values():
        for name in one.signature.types or ():
            by = comes_by.get(name.rpartition(".")[0])
            if by is not None and by.isdisjoint(one.chosen(by)):
                cause = f"it handles {name}, which comes by {', '.join(sorted(by))} and not by {one.reads}"
                yield yellow(f"subscription {one.group}", cause, "correct its topics", "type-not-produced")


def _unfilled(checked: Checked, filled: set[str]) -> Iterator[Finding]:
    """Topics that subscriptions name, and nothing here fills: another service may."""
    named = {topic: one.group for one in checked.definitions.subscriptions.values() for topic in one.topics}
    if not (foreign := named.keys() - filled):
        return
    if not checked.places.kafka:
        yield unknown(f"topics {', '.join(sorted(foreign))}", "nothing here fills them", f"give {_SIDES['topics']}")
        return
    with on_demand.OffsetReader(eventstore.Settings(), deadline=3.0) as reader:
        foreign -= {*reader.names()}
    for topic in sorted(foreign):
        cause = f"subscription {named[topic]} reads it, nothing here fills it, and the brokers do not have it"
        yield yellow(f"topic {topic}", cause, "correct the name, or deploy what fills it", "topic-unfilled")
