"""What a service declares, found in the modules that targets name: `shop`, `shop.views` or `shop.views:shop`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eventstore.errors import DeclarationError
from factfold.cli.definitions import load_definition, load_module
from factfold.console.parts import Problem
from factfold.discovery import Kind, discovered, kind_of

if TYPE_CHECKING:
    from eventstore import Aggregate, Subscription
    from eventstore.processes import Process
    from factfold.cli.events.store import StoreStanding
    from projections import ProjectionGroup
    from projections.declaring.branches import Branches

_NAMED = {"what": "package, module or definition", "example": "shop"}


@dataclass(frozen=True)
class Definitions:
    """The definitions of a service, each by its target `module:name`, and the modules that cannot be imported."""

    groups: dict[str, ProjectionGroup] = field(default_factory=dict)
    branches: dict[str, Branches] = field(default_factory=dict)
    subscriptions: dict[str, Subscription[..., Any]] = field(default_factory=dict)
    processes: dict[str, type[Process]] = field(default_factory=dict)
    aggregates: dict[str, type[Aggregate]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    targets: tuple[str, ...] = ()

    def group(self, name: str) -> tuple[str, ProjectionGroup] | None:
        """Return the target and the definition of a projection group, None for one that is not declared here."""
        return next(((target, one) for target, one in self.groups.items() if one.name == name), None)

    def add(self, kind: Kind | None, target: str, value: Any) -> None:
        """Take a definition in by its target, unless it is in by another one; an aggregate without events is none."""
        home = self.home(kind)
        if home is None or any(value is known for known in home.values()):
            return
        if kind != "aggregate" or value.event_types:
            home[target] = value

    def home(self, kind: Kind | None) -> dict[str, Any] | None:
        """Return where definitions of a kind are, None for what the console does not show."""
        homes: dict[Kind | None, dict[str, Any]] = {
            "projections": self.groups, "branches": self.branches, "subscription": self.subscriptions,
            "queue": self.subscriptions, "process": self.processes, "aggregate": self.aggregates,
        }  # fmt: skip
        return homes.get(kind)

    @property
    def count(self) -> int:
        """How many definitions there are."""
        kinds = (self.groups, self.branches, self.subscriptions, self.processes, self.aggregates)
        return sum(len(kind) for kind in kinds)


def find_definitions(targets: Sequence[str]) -> Definitions:
    """Import what targets name and collect its definitions, each once.

    A package stands for all of its modules. A module inside of it that cannot be imported is a problem of the result.

    Raises:
        DeclarationError: If a target names nothing, or a named module cannot be imported.
    """
    definitions = Definitions(targets=tuple(targets))
    for target in targets:
        module, _, name = target.partition(":")
        if name:
            value = load_definition(target, object, **_NAMED)
            kind = kind_of(value, module)
            if definitions.home(kind) is None:
                raise _nothing(target)
            definitions.add(kind, target, value)
        else:
            load_module(target, module, **_NAMED)  # whose error says what is wrong with the target
            _add_package(definitions, module)
    return definitions


def _nothing(target: str) -> DeclarationError:
    return DeclarationError(
        f"{target!r} is no definition that the console shows",
        remedy="name a group, branches, a subscription, a process, an aggregate, or their package: shop",
        place=target,
    )


def _add_package(definitions: Definitions, package: str) -> None:
    discovery = discovered(package)
    for one in discovery.definitions:
        definitions.add(one.kind, one.target, one.value)
    definitions.problems.extend(
        Problem(f"module {module} cannot be imported: {cause}", "correct it, then restart the console", module)
        for module, cause in discovery.failures.items()
    )


def topics_of(definitions: Definitions, store: StoreStanding | None) -> dict[str, str]:
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


def readers_of(definitions: Definitions, topics: Mapping[str, str], name: str) -> Iterator[ReadBy]:
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
