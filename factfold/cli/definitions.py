"""Definitions named on the command line as module:name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from eventstore.errors import DeclarationError

if TYPE_CHECKING:
    from eventstore import Aggregate

T = TypeVar("T")


def load_module(spec: str, module: str, *, what: str, example: str) -> ModuleType:
    """The module that a definition's spec names; DeclarationError if there is none, or it cannot be imported."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # a service's own modules, as `python -m` would find them
    if module in sys.modules:
        return sys.modules[module]
    try:
        missing = find_spec(module) is None
    except (ImportError, ValueError):
        missing = True
    if missing:
        raise DeclarationError(
            f"there is no module {module!r} for the {what} {spec!r}",
            remedy=f"run the command in the project's folder, and give it as module:name, for example {example}",
        )
    try:
        return import_module(module)
    except ImportError as error:
        raise DeclarationError(
            f"module {module} cannot be imported: {error}",
            remedy="install what it imports in this virtual environment, or mend the import",
            place=module,
        ) from error


def load_definition(spec: str, kind: type[T], *, what: str, example: str) -> T:
    """The object of a kind that `module:name` names; DeclarationError says what is wrong, and what the module has."""
    module, _, name = spec.partition(":")
    loaded = load_module(spec, module, what=what, example=example)
    definition = getattr(loaded, name, None) if name else None
    if definition is not None and isinstance(definition, kind):
        return definition
    problem = f"module {module} has no {what} {name!r}" if name else f"{spec!r} names a module and no {what} in it"
    if definition is not None:
        problem = f"{spec!r} is a {type(definition).__name__}, and no {what}"
    raise _not_found(problem, spec, name, _names(loaded, kind), what=what, example=example)


def load_class(spec: str, base: type[T], *, what: str, example: str) -> type[T]:
    """The subclass of a class that `module:name` names; DeclarationError as `load_definition`."""
    module, _, name = spec.partition(":")
    loaded = load_module(spec, module, what=what, example=example)
    definition = getattr(loaded, name, None) if name else None
    if isinstance(definition, type) and issubclass(definition, base):
        return definition
    problem = f"{spec!r} is no {what}" if definition is not None else f"module {module} has no {what} {name!r}"
    raise _not_found(problem, spec, name, _classes(loaded, base), what=what, example=example)


def load_aggregate(spec: str) -> type[Aggregate]:
    """The aggregate that `module:name` names; DeclarationError as `load_definition`."""
    from eventstore import Aggregate

    return load_class(spec, Aggregate, what="aggregate", example="shop.orders:Order")


def _not_found(problem: str, spec: str, name: str, known: list[str], *, what: str, example: str) -> DeclarationError:
    module = spec.partition(":")[0]
    if not known:
        return DeclarationError(
            f"{problem}: there is no {what} in {module}", remedy=f"name one, for example {example}", place=module
        )
    close = get_close_matches(name, known, 1) or known[:1]
    return DeclarationError(
        f"{problem}: it has {', '.join(known)}", remedy=f"name one of them: {module}:{close[0]}", place=module
    )


def _names(module: ModuleType, kind: type) -> list[str]:
    if kind is object:
        return []
    return _sorted(name for name, value in vars(module).items() if isinstance(value, kind))


def _classes(module: ModuleType, base: type) -> list[str]:
    return _sorted(
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ != base.__module__
    )


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("_"))
