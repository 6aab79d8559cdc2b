"""Views: a DataFrame function of current tables, with the foreign keys along which a change reaches it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from projections.errors import InvalidDefinition
from projections.streams import EventStream
from projections.tables import Table, VersionTable, checked_identifier


@dataclass(frozen=True)
class Reference:
    """A foreign key: ``source.column`` holds the key of ``target`` (names of the view's tables)."""

    source: str
    column: str
    target: str


@dataclass(frozen=True)
class View:
    """A declared view; ``tables`` are in the order of the function's parameters, the root first.

    The function must be deterministic and may look only at rows that ``references`` reach from a root row: then a batch
    of changes can be answered from the rows it touches alone.
    """

    name: str
    key: str
    tables: Mapping[str, Table]
    references: tuple[Reference, ...]
    function: Callable[..., Any]

    @property
    def root(self) -> str:
        """The name of the table whose key is the view's."""
        return next(iter(self.tables))

    def __call__(self, *frames: Any) -> Any:
        """Apply the function to DataFrames given in the order of ``tables``."""
        return self.function(*frames)

    def signature(self) -> str:
        """A text that changes with the function's source, its tables and references."""
        source = hashlib.sha256(inspect.getsource(self.function).encode()).hexdigest()
        tables = [f"{name}={table.signature()}" for name, table in self.tables.items()]
        return f"{self.name}|{self.key}|{tables}|{self.references}|{source}"


def view(
    *, key: str, references: Mapping[str, Table] | None = None, tables: Mapping[str, Table] | None = None
) -> Callable[[Callable[..., Any]], View]:
    """Declare a view: the function's parameters name tables of its module, the first is the root.

    ``references`` maps a foreign-key column of the root, or ``table.column`` of a table further on, to the table whose
    key it holds. ``tables`` overrides the look-up by parameter name. Raises InvalidDefinition or UnknownColumn.
    """

    def declare(function: Callable[..., Any]) -> View:
        name = checked_identifier(function.__name__, what="view")
        bound = _bind_tables(function, tables or {})
        root = next(iter(bound))
        _require_current(root, bound[root], view_name=name)
        if bound[root].key != (key,):
            raise InvalidDefinition(
                f"view {name!r} has key {key!r}, its root table {root!r} has key {', '.join(bound[root].key)}",
                remedy="a view joined by foreign keys has the key of its first table",
            )
        resolved = tuple(_resolve(c, t, bound, view_name=name) for c, t in (references or {}).items())
        _require_all_reached(name, bound, resolved)
        return View(name, key, bound, resolved, function)

    return declare


def _bind_tables(function: Callable[..., Any], explicit: Mapping[str, Table]) -> dict[str, Table]:
    scope = {**inspect.getclosurevars(function).nonlocals, **getattr(function, "__globals__", {}), **explicit}
    bound: dict[str, Table] = {}
    for parameter in inspect.signature(function).parameters:
        found = scope.get(parameter)
        if not isinstance(found, Table):
            raise InvalidDefinition(
                f"view {function.__name__!r} takes {parameter!r}, and no table of that name is in its module",
                remedy=f"define {parameter} = Table.from_events(…), or another of its kind, or pass tables={{…}}",
            )
        bound[checked_identifier(parameter, what="table")] = found
    if not bound:
        raise InvalidDefinition(
            f"view {function.__name__!r} takes no table", remedy="name its tables as parameters, the root first"
        )
    return bound


def _resolve(spec: str, target: Table, bound: Mapping[str, Table], *, view_name: str) -> Reference:
    source, _, column = spec.rpartition(".")
    source = source or next(iter(bound))
    if source not in bound:
        raise InvalidDefinition(f"reference {spec!r} starts at an unknown table", remedy=f"known: {', '.join(bound)}")
    name = next((n for n, table in bound.items() if table is target), None)
    if name is None:
        raise InvalidDefinition(
            f"view {view_name!r} refers by {spec!r} to a table it does not take", remedy="add it as a parameter"
        )
    place = f"{view_name}: {spec} → {name}"
    _require_same_type(bound[source], column, target, place=place)
    _require_time(bound[source], target, place=place)
    return Reference(source, column, name)


def _require_same_type(source: Table, column: str, target: Table, *, place: str) -> None:
    if len(target.key) != 1:
        raise InvalidDefinition("a referenced table needs a key of one column", remedy="refer to another", place=place)
    ours, theirs = source.require(column), target.columns[target.key[0]]
    if column in source.personal:
        raise InvalidDefinition(
            "the foreign key is personal, and sealed values match nothing", remedy="refer by a clear one", place=place
        )
    integers = {"int", "long"}
    if ours.kind != theirs.kind and not {ours.kind, theirs.kind} <= integers:
        raise InvalidDefinition(
            f"the foreign key is {ours.ddl}, the key it points to is {theirs.ddl}",
            remedy="declare both with one type: rows would never match",
            place=place,
        )


def _require_current(root: str, table: Table, *, view_name: str) -> None:
    if isinstance(table, VersionTable):
        raise InvalidDefinition(
            f"the root of view {view_name!r}, {root!r}, holds the versions of a table",
            remedy="versions are looked up from a stream: make the stream the first parameter",
        )


def _require_time(source: Table, target: Table, *, place: str) -> None:
    """Versions are found by an event time, and lead no further: their own references would need one too."""
    if isinstance(source, VersionTable):
        raise InvalidDefinition(
            "a reference starts at the versions of a table",
            remedy="refer from the stream, or use the table's current rows (Table.from_changelog) beside its versions",
            place=place,
        )
    if isinstance(target, VersionTable) and not isinstance(source, EventStream):
        raise InvalidDefinition(
            "versions are looked up from a table whose rows have no event time",
            remedy="declare the root with Stream.from_events(…), or refer to Table.from_changelog(…)",
            place=place,
        )


def _require_all_reached(name: str, bound: Mapping[str, Table], references: tuple[Reference, ...]) -> None:
    reached = {next(iter(bound))}
    for _ in references:
        reached |= {r.target for r in references if r.source in reached}
    if missing := [table for table in bound if table not in reached]:
        raise InvalidDefinition(
            f"no reference of view {name!r} reaches table {missing[0]!r}",
            remedy=f"add the foreign key to references: {{'column': {missing[0]}}}",
        )
