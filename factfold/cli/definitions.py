"""Definitions named on the command line as module:name, and the words that a shell offers for them."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import eventstore
from eventstore.errors import DeclarationError, FactfoldError
from eventstore.extras import MissingExtra, explained
from factfold.discovery import Definition, Discovery, Kind, discovered, kind_of, service_packages

if TYPE_CHECKING:
    from eventstore import Aggregate

T = TypeVar("T")


class ModuleBroken(DeclarationError):
    """A module that a command names exists, and its code fails when it is imported."""


def load_module(spec: str, module: str, *, what: str, example: str) -> ModuleType:
    """The module that a definition's spec names; DeclarationError if there is none, or it cannot be imported."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # a service's own modules, as `python -m` would find them
    if module in sys.modules:
        return sys.modules[module]
    if _is_missing(module):
        raise DeclarationError(
            f"there is no module {module!r} for the {what} {spec!r}",
            remedy=f"write it with dots: {_dotted(spec)}"
            if "/" in module or module.endswith(".py")
            else f"run the command in the project's folder, and name what its code has, for example {example}",
        )
    return _imported(module)


def _is_missing(module: str) -> bool:
    """Whether there is no such module; its packages are imported, with the errors of their code."""
    package = module.rpartition(".")[0]
    if package and (_is_missing(package) or not hasattr(_imported(package), "__path__")):
        return True
    try:
        return module not in sys.modules and find_spec(module) is None
    except (ImportError, ValueError):
        return True


def _dotted(spec: str) -> str:
    path, colon, name = spec.partition(":")
    return f"{path.removesuffix('.py').strip('./').replace('/', '.')}{colon}{name}"


def _imported(module: str) -> ModuleType:
    try:
        return import_module(module)
    except FactfoldError:
        raise
    except ImportError as error:
        if isinstance(extra := explained(error), MissingExtra):
            raise extra from error
        raise ModuleBroken(
            f"module {module} cannot be imported: {error}",
            remedy="install what it imports in this virtual environment, or mend the import",
            place=module,
        ) from error
    except SystemExit as ended:
        raise ModuleBroken(
            f"module {module} ends the program when it is imported: exit code {ended.code}",
            remedy='put what it runs below: if __name__ == "__main__":',
            place=_last_line(ended),
        ) from ended
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModuleBroken(
            f"module {module} cannot be imported: {type(error).__name__}: {error}{_close_name(error)}",
            remedy="correct this line",
            place=_last_line(error),
        ) from error


def _close_name(error: BaseException) -> str:
    name = error.name if isinstance(error, AttributeError) else None
    close = get_close_matches(name, dir(error.obj), 1) if name else []  # type: ignore[attr-defined]
    return f". Did you mean {close[0]!r}?" if close else ""


def _last_line(error: BaseException) -> str:
    """The line of the last imported module, and not the one of a function that it called."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    executed = [after for before, after in pairwise(frames) if before.filename.startswith("<frozen importlib")]
    return f"{executed[-1].filename}:{executed[-1].lineno}"


def load_definition(spec: str, kind: type[T], *, what: str, example: str) -> T:
    """The object of a kind that `module:name` names; DeclarationError says what is wrong, and what the module has."""
    known = None if kind is object else lambda value: isinstance(value, kind)
    return cast("T", _loaded(spec, lambda value: isinstance(value, kind), known, what=what, example=example))


def load_class(spec: str, base: type[T], *, what: str, example: str) -> type[T]:
    """The subclass of a class that `module:name` names; DeclarationError as `load_definition`."""

    def is_one(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, base)

    def is_own(value: Any) -> bool:
        return is_one(value) and value.__module__ != base.__module__

    return cast("type[T]", _loaded(spec, is_one, is_own, what=what, example=example))


def load_aggregate(spec: str) -> type[Aggregate]:
    """The aggregate that `module:name` names; DeclarationError as `load_definition`."""
    return load_class(spec, eventstore.Aggregate, what="aggregate", example="shop.orders:Order")


def _loaded(
    spec: str, is_meant: Callable[[Any], bool], offered: Callable[[Any], bool] | None, *, what: str, example: str
) -> Any:
    """What a spec names; DeclarationError with what its module has instead, of what is offered."""
    module, _, name = spec.partition(":")
    loaded = load_module(spec, module, what=what, example=example)
    definition = getattr(loaded, name, None) if name else None
    if definition is not None and is_meant(definition):
        return definition
    other = "" if isinstance(definition, type) else f"a {type(definition).__name__} and is "
    problem = f"{spec!r} is {other}no {what}"
    if definition is None:
        problem = f"module {module} has no {what} {name!r}" if name else f"{spec!r} names a module and no {what} in it"
    known = sorted(key for key, value in vars(loaded).items() if offered and offered(value) and key[:1] != "_")
    if not known:
        raise DeclarationError(
            f"{problem}: there is no {what} in {module}", remedy=f"name one, for example {example}", place=module
        )
    close = get_close_matches(name, known, 1) or known[:1]
    raise DeclarationError(
        f"{problem}: it has {', '.join(known)}", remedy=f"name one of them: {module}:{close[0]}", place=module
    )


def find_definitions(targets: Sequence[str]) -> Discovery:
    """Import what targets name and collect its definitions, each once; an aggregate without events is none.

    A package stands for all of its modules. A module inside of it that cannot be imported is a failure of the result.

    Raises:
        DeclarationError: If a target names nothing, or a named module cannot be imported.
    """
    named = {"what": "package, module or definition", "example": "shop"}
    definitions: dict[int, Definition] = {}
    failures: dict[str, str] = {}
    for target in targets:
        module, _, name = target.partition(":")
        if name:
            found = Discovery(definitions=(_defined(target, module, load_definition(target, object, **named)),))
        else:
            load_module(target, module, **named)  # whose error says what is wrong with the target
            found = discovered(module)
        failures |= found.failures
        for one in found.definitions:
            if one.kind != "aggregate" or one.value.event_types:
                definitions.setdefault(id(one.value), one)
    return Discovery(tuple(targets), tuple(definitions.values()), failures)


def _defined(target: str, module: str, value: object) -> Definition:
    if (kind := kind_of(value, module)) is not None:
        return Definition(kind, target, value)
    raise DeclarationError(
        f"{target!r} is a {type(value).__name__}, and no definition of a service",
        remedy="name a group, branches, a subscription, a process, an aggregate, or their package: shop",
        place=target,
    )


def completes(*kinds: Kind) -> Callable[[str], list[str]]:
    """Return the completion of an argument: the definitions of these kinds in the packages of this folder."""

    def complete(incomplete: str) -> list[str]:
        with redirect_stdout(io.StringIO()):  # the shell would take what a module prints for words
            services = [discovered(package) for package in service_packages(Path())]
        targets = [definition.target for service in services for definition in service.of(*kinds)]
        return [target for target in targets if target.startswith(incomplete)]

    return complete


def complete_package(incomplete: str) -> list[str]:
    """Return the packages of this folder that may be a service."""
    return [package for package in service_packages(Path()) if package.startswith(incomplete)]
