"""The parts of a service that `factfold up` runs, each as a command, and why some definitions cannot run.

A new event store in a SQLite file, prepared for a service before `factfold up` and `factfold dev` run its parts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Final

import eventstore
from factfold import on_demand
from factfold.cli.definitions import load_definition
from factfold.cli.options import setting
from factfold.discovery import Definition, Discovery, discovered

if TYPE_CHECKING:
    from eventstore import Subscription

STORE_URL: Final = "FACTFOLD_STORE_URL"
VIEWS_URL: Final = "FACTFOLD_VIEWS_URL"
_DATABASE: Final = "FACTFOLD_INBOX_URL"
_CHECKPOINTS: Final = "FACTFOLD_CHECKPOINTS"
_PYTHON: Final = (sys.executable, "-m")


@dataclass(frozen=True)
class Part:
    """A process of the service: its name on the screen, its command, and variables that the command needs."""

    name: str
    kind: str
    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


_SCRIPT: Final = 'its line {line} runs at the import. With definitions, guard it: if __name__ == "__main__"'


@dataclass(frozen=True)
class LeftOut:
    """A definition or module that is not run, and why."""

    name: str
    kind: str
    reason: str


def parts_of(discovery: Discovery, settings: Mapping[str, str]) -> list[Part | LeftOut]:
    """Return what to run of a service; ``settings`` are the variables of the environment.

    With an event store in SQLite there are no servers: subscriptions read the store, and evaluate branches themselves.
    """
    planned: list[Part | LeftOut] = [LeftOut(name, "module", cause) for name, cause in discovery.failures.items()]
    planned += [LeftOut(name, "script", _SCRIPT.format(line=line)) for name, line in discovery.scripts.items()]
    planned += [_group(one, settings) for one in discovery.of("projections")]
    planned += _embedded(discovery) if is_embedded(settings) else _with_servers(discovery, settings)
    if processes := discovery.of("process"):
        planned.append(_processes(processes, settings))
    return planned


def is_embedded(settings: Mapping[str, str]) -> bool:
    """Whether the service's events are in a SQLite file, and no Kafka is needed."""
    return settings.get(STORE_URL, settings.get(VIEWS_URL, "")).startswith("sqlite")


def _group(one: Definition, settings: Mapping[str, str]) -> Part | LeftOut:
    if not settings.get(VIEWS_URL):
        return LeftOut(one.target, one.kind, f"no database of views is named: set views_url or {VIEWS_URL}")
    return Part(one.target, one.kind, (*_PYTHON, "factfold", "projections", "run", one.target))


def _processes(definitions: Sequence[Definition], settings: Mapping[str, str]) -> Part | LeftOut:
    """All of them in one process: they share the work of one store."""
    targets = [one.target for one in definitions]
    if not settings.get(STORE_URL):
        return LeftOut(", ".join(targets), "process", f"no event store is named: set store_url or {STORE_URL}")
    return Part(", ".join(targets), "process", (*_PYTHON, "factfold", "processes", "run", *targets))


def _with_servers(discovery: Discovery, settings: Mapping[str, str]) -> Iterator[Part | LeftOut]:
    checkpoints = {_CHECKPOINTS: settings.get(_CHECKPOINTS) or ".factfold/checkpoints"}
    for one in discovery.of("branches"):
        yield Part(one.target, one.kind, (*_PYTHON, "factfold", "branches", "run", one.target), checkpoints)
    database = settings.get(_DATABASE) or settings.get(STORE_URL)
    variables = {_DATABASE: database} if database else {}
    for one in discovery.of("subscription", "queue"):
        yield Part(one.target, one.kind, (*_PYTHON, "factfold", "subscriptions", "run", one.target), variables)


def _embedded(discovery: Discovery) -> Iterator[Part | LeftOut]:
    for one in discovery.of("branches"):
        yield LeftOut(one.target, one.kind, "without Kafka its subscriptions read the store and evaluate it themselves")
    for one in discovery.of("queue"):
        yield LeftOut(one.target, one.kind, "a queue is a share group of Kafka: name PostgreSQL and Kafka to run it")
    for one in discovery.of("subscription"):
        reason = unreadable_in_store(one.value)
        if reason:
            yield LeftOut(one.target, one.kind, reason)
        else:
            command = (*_PYTHON, "factfold.development.from_store", discovery.targets[0], one.target)
            yield Part(one.target, one.kind, command)


def unreadable_in_store(subscription: Subscription[..., object]) -> str | None:
    """Return why a subscription cannot be read from a store; None if it can."""
    if subscription.pattern is not None:
        return "a pattern of topics is for Kafka: name the topics"
    if len(subscription.topics) > 1:
        return "it reads several topics, which `factfold up` does not read from a store"
    if subscription.retry:
        return "its retry topics are Kafka's"
    return None


Prepare = Annotated[
    str | None,
    setting("--prepare", "A function that prepares a new store in SQLite, as module:name. It gets the store."),
]


def prepare_new_store(package: str, settings: Mapping[str, str], function: str | None = None) -> str | None:
    """Create the tables of an event store in SQLite that has none, and register the service's aggregates.

    Args:
        package: The service, which is imported only if there is something to do.
        settings: The variables of the environment.
        function: The service's own function, as module:name, which gets the store: for its tables and what it captures.

    Returns:
        The file, or None if nothing was to do.
    """
    if not is_embedded(settings):
        return None
    url, prefix = settings.get(STORE_URL) or settings[VIEWS_URL], settings.get("FACTFOLD_STORE_TOPIC_PREFIX")
    source = settings.get("FACTFOLD_STORE_SOURCE", on_demand.DEFAULT_SOURCE)
    with eventstore.SqlEventStore(url, source=source, topic_prefix=prefix) as store:
        if store.version().installed is not None:
            return None
        own = function and load_definition(function, FunctionType, what="function", example="shop.demo:prepare")
        store.create_tables()
        store.register(*(one.value for one in discovered(package).of("aggregate")))
        if own:
            own(store)
        return store.engine.url.database
