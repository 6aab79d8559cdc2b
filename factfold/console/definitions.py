"""What a service declares, found in the modules that targets name: `shop`, `shop.views` or `shop.views:shop`."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from eventstore.errors import DeclarationError
from factfold.cli.definitions import load_definition, load_module
from factfold.console.parts import Problem

if TYPE_CHECKING:
    from eventstore import Aggregate, Subscription
    from eventstore.processes import Process
    from projections import Branches, ProjectionGroup

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
    found, seen = Definitions(), set[int]()
    for target in targets:
        for place, value in _named(target, found.problems):
            if id(value) not in seen and _add(found, place, value):
                seen.add(id(value))
            elif ":" in target and id(value) not in seen:
                raise _nothing(target)
    return found


def _nothing(target: str) -> DeclarationError:
    return DeclarationError(
        f"{target!r} is no definition that the console shows",
        remedy="name a group, branches, a subscription, a process or an aggregate, or their package: shop",
        place=target,
    )


def _named(target: str, problems: list[Problem]) -> Iterator[tuple[str, Any]]:
    module, _, name = target.partition(":")
    if name:
        yield target, load_definition(target, object, **_NAMED)
        return
    loaded = load_module(target, module, **_NAMED)
    for one in (loaded, *_inside(loaded, problems)):
        yield from ((f"{one.__name__}:{name}", value) for name, value in vars(one).items() if name[:1] != "_")


def _inside(package: ModuleType, problems: list[Problem]) -> Iterator[ModuleType]:
    """The modules of a package; those that run when they are imported are left out."""
    folders: Iterable[str] = getattr(package, "__path__", ())
    for found in pkgutil.iter_modules(folders, f"{package.__name__}."):
        if found.name.endswith(".__main__"):
            continue
        try:
            module = import_module(found.name)
        except Exception as error:
            problems.append(_not_imported(found.name, error))
            continue
        yield module
        yield from _inside(module, problems)


def _not_imported(module: str, error: Exception) -> Problem:
    if isinstance(error, DeclarationError):
        return Problem.of(error)
    return Problem(f"module {module} cannot be imported: {error}", "correct it, then restart the console", module)


def _add(found: Definitions, place: str, value: Any) -> bool:
    home = _home(found, value)
    if home is None:
        return False
    home[_own_place(place, value)] = value
    return True


def _home(found: Definitions, value: Any) -> dict[str, Any] | None:
    from eventstore import Aggregate, Subscription
    from eventstore.processes import Process
    from projections import Branches, ProjectionGroup

    if isinstance(value, type):
        if issubclass(value, Process):
            return None if value is Process else found.processes
        return found.aggregates if issubclass(value, Aggregate) and value.event_types else None
    kinds: tuple[tuple[type, dict[str, Any]], ...] = (
        (ProjectionGroup, found.groups), (Branches, found.branches), (Subscription, found.subscriptions),
    )  # fmt: skip
    return next((home for kind, home in kinds if isinstance(value, kind)), None)


def _own_place(place: str, value: Any) -> str:
    """A class is named by the module that defines it, whoever imports it."""
    return f"{value.__module__}:{value.__qualname__}" if isinstance(value, type) else place
