"""What a service declares, found in the modules that targets name: `shop`, `shop.views` or `shop.views:shop`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eventstore.errors import DeclarationError
from factfold.cli.definitions import load_definition, load_module
from factfold.console.parts import Problem
from factfold.discovery import Kind, discovered, kind_of

if TYPE_CHECKING:
    from eventstore import Aggregate, Subscription
    from eventstore.processes import Process
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
    definitions = Definitions()
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
