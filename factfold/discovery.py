"""The definitions of a service's package: projection groups, branches, subscriptions, processes and aggregates.

for definition in discovered("shop").definitions:
    print(definition.kind, definition.target)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

import eventstore
import projections
from eventstore.errors import DeclarationError
from factfold import on_demand

if TYPE_CHECKING:
    from eventstore import Aggregate, Subscription
    from projections import ProjectionGroup

Kind = Literal["projections", "branches", "subscription", "queue", "process", "aggregate"]
KINDS: Final[tuple[Kind, ...]] = ("projections", "branches", "subscription", "queue", "process", "aggregate")
# Modules that run when they are imported, or that are not the service.
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEFT_OUT: Final = ("__main__", "conftest", "tests", "setup")


@dataclass(frozen=True)
class Definition:
    """One definition; ``target`` is its `module:name`, as commands take it."""

    kind: Kind
    target: str
    value: Any

    @property
    def name(self) -> str:
        """The name in its module."""
        return self.target.partition(":")[2]


@dataclass(frozen=True)
class Discovery:
    """The definitions of packages, modules or single targets; ``failures`` are the causes of broken modules.

    ``scripts`` are the modules that were not imported, each with the line that would have run.
    """

    targets: tuple[str, ...] = ()
    definitions: tuple[Definition, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, int] = field(default_factory=dict)

    def of(self, *kinds: Kind) -> tuple[Definition, ...]:
        """Return the definitions of some kinds."""
        return tuple(one for one in self.definitions if one.kind in kinds)

    def require_complete(self) -> None:
        """Raise DeclarationError for a module that cannot be imported."""
        for module, cause in self.failures.items():
            raise DeclarationError(f"module {module} cannot be imported: {cause}", remedy="correct it")

    def group(self, name: str) -> tuple[str, ProjectionGroup] | None:
        """Return the target and the definition of a projection group, None for one that is not declared here."""
        return next(((target, one) for target, one in self.groups.items() if one.name == name), None)

    @cached_property
    def groups(self) -> dict[str, ProjectionGroup]:
        """The projection groups by their targets."""
        return self._values("projections")

    @cached_property
    def branches(self) -> dict[str, on_demand.Branches]:
        """The definitions of branches by their targets."""
        return self._values("branches")

    @cached_property
    def subscriptions(self) -> dict[str, Subscription[..., Any]]:
        """The subscriptions and queues by their targets."""
        return self._values("subscription", "queue")

    @cached_property
    def processes(self) -> dict[str, type[on_demand.Process]]:
        """The processes by their targets."""
        return self._values("process")

    @cached_property
    def aggregates(self) -> dict[str, type[Aggregate]]:
        """The aggregates by their targets."""
        return self._values("aggregate")

    def _values(self, *kinds: Kind) -> dict[str, Any]:
        return {one.target: one.value for one in self.of(*kinds)}


def discovered(package: str) -> Discovery:
    """Import a package with its modules and return what they define, each once, ordered by kind and target.

    Tests, `__main__` and scripts are not imported, as far as their text shows what they are. Raises DeclarationError if
    there is no such package.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    failures: dict[str, str] = {}
    scripts: dict[str, int] = {}
    _require_package(package)
    modules = list(_modules(package, failures, scripts))
    definitions: dict[int, Definition] = {}
    for module in modules:
        for name, value in vars(module).items():
            kind = None if name.startswith("_") else kind_of(value, package)
            if kind is not None and (id(value) not in definitions or name in _assigned(module.__name__)):
                definitions[id(value)] = Definition(kind, f"{module.__name__}:{name}", value)
    ordered = sorted(definitions.values(), key=lambda one: (KINDS.index(one.kind), one.target))
    return Discovery((package,), tuple(ordered), failures, scripts)


def service_packages(folder: Path) -> list[str]:
    """Return the packages of a project's folder that may be a service: all but tests and documentation."""
    packages = (path.parent.name for path in folder.glob("*/__init__.py"))
    return sorted(name for name in packages if name.isidentifier() and name not in ("tests", "docs"))


def _require_package(package: str) -> None:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise DeclarationError(
            f"there is no package {package!r}",
            remedy="run the command in the project's folder and name its package, for example: factfold up shop",
        )


def _acts(module: str) -> int | None:
    """The line at which a module would do something if it was imported, read from its text. None if it does nothing.

    A module with definitions may call what others define, such as `logging.basicConfig()`. One with classes or
    decorated functions may call its own values too, such as `logger.addHandler(…)`.
    """
    body = _statements(module)
    functions = {one.name for one in body if isinstance(one, _FUNCTIONS)}
    values = {name for one in body if isinstance(one, ast.Assign) for name in _names(one)}
    defines = any(isinstance(one, ast.ClassDef) and one.bases for one in body) or any(
        isinstance(one, _FUNCTIONS) and one.decorator_list for one in body
    )
    calls_results = any(isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(one.value, ast.Call) for one in body)
    for one in body:
        called = set(_called(one)) if isinstance(one, ast.Expr | ast.For) else set()
        only_calls = called and not defines and (called & values or not calls_results)
        if _is_block(one) or called & functions or only_calls:
            return one.lineno
    return None


def _is_block(statement: ast.stmt) -> bool:
    """Whether a statement is a loop, or a `with` around more than imports."""
    if isinstance(statement, ast.With):
        return not all(isinstance(one, ast.Import | ast.ImportFrom) for one in statement.body)
    return isinstance(statement, ast.While)


def _called(statement: ast.stmt) -> Iterator[str]:
    """The names that calls begin with: `store` of `store.append(…)`."""
    for call in ast.walk(statement):
        if isinstance(call, ast.Call):
            root: ast.expr = call.func
            while isinstance(root, ast.Attribute | ast.Call):
                root = root.value if isinstance(root, ast.Attribute) else root.func
            yield root.id if isinstance(root, ast.Name) else ""


def _modules(name: str, failures: dict[str, str], scripts: dict[str, int]) -> Iterator[ModuleType]:
    """Import a module and what is in it. Whatever it raises, even SystemExit, is its failure and ends nothing else."""
    try:
        module = import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        failures[name] = f"{type(error).__name__}: {error}"
        return
    yield module
    for found in iter_modules(getattr(module, "__path__", ()), f"{name}."):
        part = found.name.rpartition(".")[2]
        if part in _LEFT_OUT or part.startswith("test_"):
            continue
        if not found.ispkg and (line := _acts(found.name)) is not None:
            scripts[found.name] = line
            continue
        yield from _modules(found.name, failures, scripts)


def kind_of(value: object, package: str) -> Kind | None:
    """Return what a module's value is, None for no definition. Classes count if the package defines them."""
    kinds = _kinds()
    if isinstance(value, type):
        own = value.__module__.partition(".")[0] == package.partition(".")[0]
        return next(
            (kinds[base] for base in (on_demand.Process, eventstore.Aggregate) if own and issubclass(value, base)), None
        )
    kind = next((kind for base, kind in kinds.items() if isinstance(value, base)), None)
    return "queue" if kind == "subscription" and getattr(value, "share", False) else kind


@cache
def _kinds() -> Mapping[type, Kind]:
    return {
        projections.ProjectionGroup: "projections",
        on_demand.Branches: "branches",
        eventstore.Subscription: "subscription",
        on_demand.Process: "process",
        eventstore.Aggregate: "aggregate",
    }


@cache
def _assigned(module: str) -> frozenset[str]:
    """The names that a module assigns or defines, and does not import."""
    return frozenset(name for statement in _statements(module) for name in _names(statement))


def _statements(module: str) -> list[ast.stmt]:
    """The statements of a module by its text; none of one that cannot be read, of which its import says why."""
    try:
        spec = find_spec(module)
        return ast.parse(Path(spec.origin).read_bytes()).body if spec and spec.origin else []
    except Exception:
        return []


def _names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
