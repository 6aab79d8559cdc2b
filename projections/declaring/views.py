"""Views: a DataFrame function of current tables, with the foreign keys along which a change reaches it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, Union

from eventstore.aggregates.aggregate import source_of
from projections.declaring.any_table import AnyTable
from projections.declaring.naming import listed
from projections.declaring.predicates import Predicate
from projections.declaring.timing.nearness import Near
from projections.declaring.timing.operands import Term
from projections.declaring.timing.patterns import Pattern, Step
from projections.declaring.timing.promises import InWindows, Reach
from projections.declaring.view_topics import FinalResults, ViewTopic
from projections.errors import InvalidDefinition

Columns = str | tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """A foreign key: the ``columns`` of ``source`` hold the key of ``target`` (names of the view's parameters)."""

    source: str
    columns: tuple[str, ...]
    target: str

    def __str__(self) -> str:
        return f"{self.source}.{'+'.join(self.columns)} → {self.target}"


class Planned:
    """The references of a view, or its stages, set once Spark has planned it, in every copy of the view.

    The last stage is the view itself.
    """

    def __init__(self, references: tuple[Reference, ...] | None = None) -> None:
        """With the references as far as they are known."""
        self.references = references
        self.stages: tuple[View, ...] = ()
        self.session: object = None  # in which Spark planned them: their functions are of it


Input = Union[AnyTable, "View"]
Within = Literal["group", "row", "all"]


@dataclass(frozen=True, eq=False)
class View:
    """A declared view. Make it by `view`, `sql_view`, `windowed` or `history`.

    The function must be deterministic, and may look only at rows that the references reach from a root row, or at one
    partition: the rows that a batch touches are then enough to update the view.

    Attributes:
        name: The name of the view.
        key: The columns that identify a row, or none where the plan shows them.
        tables: The tables and views by the function's parameters, the root first.
        declared: The references, or where they stand once Spark has planned the function.
        function: The function.
        by: The columns of a partition.
        topic: A topic that gets the view's rows too.
        lake: A Delta table that gets the view's rows too.
        final: When rows are final.
        reach: How far in time it looks.
        windows: The windows of its rows, if it declares any.
        by_table: The columns of a partition in tables that have them under other names.
        within: Of which rows a partition is: a ``group`` of rows, one ``row`` of each table, or ``all`` rows.
        near: How far a changed row reaches in its partition, once Spark has planned the function.

    Examples:
        >>> @view(key="id")
        ... def customer_names(customers): return customers.select("id", "name")
        >>> customer_names
        <View customer_names: key id, of customers>
    """

    holds_versions: ClassVar[bool] = False

    name: str
    key: tuple[str, ...]
    tables: Mapping[str, Input]
    declared: tuple[Reference, ...] | Planned
    function: Callable[..., Any]
    by: tuple[str, ...] = ()
    topic: ViewTopic | None = None
    lake: str | None = None
    final: FinalResults | None = None
    reach: Reach | None = None
    windows: InWindows | None = None
    by_table: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    within: Within = "group"
    near: Near = field(default_factory=Near)

    def __repr__(self) -> str:
        """One line: the name, the key and the tables."""
        return f"<View {self.name}: key {', '.join(self.key)}, of {listed(tuple(self.tables))}>"

    @property
    def filled(self) -> tuple[str, ...]:
        """The topic and the Delta table that get its rows: a name, and a path, which has a slash."""
        topic = None if self.topic is None else self.topic.name
        return tuple(place for place in (topic, self.lake) if place is not None)

    @property
    def stages(self) -> tuple[View, ...]:
        """The views that keep it up to date, or the view itself unless it is cut. The last one has its name."""
        return (isinstance(self.declared, Planned) and self.declared.stages) or (self,)

    @property
    def references(self) -> tuple[Reference, ...]:
        """The foreign keys along which a change reaches the view.

        Raises InvalidDefinition if Spark has not planned the view yet.
        """
        result = self.declared.references if isinstance(self.declared, Planned) else self.declared
        if result is None:
            raise InvalidDefinition(
                f"the references of view {self.name!r} are not known before Spark has planned it",
                remedy="ask after a rebuild or a run of its group has begun",
            )
        return result

    @property
    def references_are_known(self) -> bool:
        """Whether they are noted, or Spark has planned the view in this process."""
        return not isinstance(self.declared, Planned) or self.declared.references is not None

    @property
    def root(self) -> str:
        """The name of the table whose key is the view's key, or its first part."""
        return next(iter(self.tables))

    @property
    def roots(self) -> tuple[str, ...]:
        """The names of the tables whose rows make rows of the view."""
        return tuple(self.tables) if self.by else (self.root,)

    @property
    def grouped(self) -> bool:
        """Whether it has one row for each partition."""
        return self.by == self.key

    @property
    def root_key(self) -> tuple[str, ...]:
        """The part of the key that comes from the root or the partition."""
        return self.by or self.key

    def root_key_in(self, root: str) -> tuple[str, ...]:
        """The columns of a root that ``root_key`` holds, one by one."""
        return self.by_table.get(root, self.by) if self.by else self.tables[root].key

    @property
    def key_may_be_null(self) -> bool:
        """Whether a part of the key may be null: that of the partition without a value."""
        return bool(self.by) or self.tables[self.root].key_may_be_null

    @property
    def inputs(self) -> tuple[View, ...]:
        """The views that this one reads, each once."""
        return tuple(dict.fromkeys(filter(None, map(view_behind, self.tables.values()))))

    @property
    def whole(self) -> View:
        """The view: it has no condition."""
        return self

    @property
    def entries(self) -> tuple[str, ...]:
        """The columns of the key that hold an event's id@version: those of the stream that it makes windows of."""
        return next(iter(self.tables.values())).entries if self.windows is not None else ()

    @property
    def may_be_personal(self) -> bool:
        """Whether its rows hold personal values, opened, or may hold them."""
        return any(table.may_be_personal for table in self.tables.values())

    @property
    def columns_are_known(self) -> bool:
        """Whether every input is a table. A view's columns are known once its function was planned."""
        return not any(isinstance(table, View) for table in self.tables.values())

    @property
    def place(self) -> str:
        """Its name in errors, with the line of its function."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"view {self.name}" + (f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else "")

    def table(self, name: str) -> AnyTable:
        """Return one of its tables, after the views among them were resolved."""
        result = self.tables[name]
        assert isinstance(result, AnyTable)  # noqa: S101 - ProjectionGroup.resolved comes before everything that asks
        return result

    def __call__(self, *frames: Any) -> Any:
        """Apply the function to DataFrames given in the order of ``tables``."""
        return self.function(*frames)

    def signature(self) -> str:
        """Return a text that changes with the function's source and its tables. References follow from both."""
        tables = [f"{name}={table.signature()}" for name, table in self.tables.items()]
        topic = "" if self.topic is None else f"|topic {self.topic.name}"
        results = None if self.final is None else self.final.published
        topic += "" if self.lake is None else f"|table {self.lake}"
        topic += "" if results is None else f"|final results in {results.name}"
        reach = "" if self.reach is None else f"|reach {self.reach}"
        return f"{self.name}|{self.key}|{tables}|{self.by}|{source_digest(self.function)}{topic}{reach}"


@dataclass(frozen=True, repr=False, eq=False)
class ViewTable(AnyTable):
    """The rows of a view that another view of the run reads, once its columns are known."""

    view: View

    @property
    def key_may_be_null(self) -> bool:
        """True if a part of the view's key may be null."""
        return self.view.key_may_be_null

    @property
    def entries(self) -> tuple[str, ...]:
        """The view's."""
        return self.view.entries

    @property
    def may_be_personal(self) -> bool:
        """The view's."""
        return self.view.may_be_personal

    def signature(self) -> str:
        """The view's: what it reads is part of what it means."""
        return self.view.signature()


def view_behind(source: Input) -> View | None:
    """The view whose rows an input is, None for a table over a topic."""
    return source if isinstance(source, View) else source.view if isinstance(source, ViewTable) else None


# Of a view: its last stage has others.
_OF_STAGES: Final = ("key", "by", "by_table", "within", "tables", "declared")


def noted_references(views: Iterable[View]) -> dict[str, list[Any]]:
    """The references of views as JSON keeps them, by view, or the stages of those that were cut; for `with_noted`."""
    return {
        view.name: _noted(view) if view.stages == (view,) else [_noted_stage(view, stage) for stage in view.stages]
        for view in views
    }


def _noted(view: View) -> list[Any]:
    return [[r.source, list(r.columns), r.target] for r in view.references]


def _noted_stage(view: View, stage: View) -> dict[str, Any]:
    roles = {id(table): name for name, table in view.tables.items()}
    tables = {name: roles.get(id(table), table.name) for name, table in stage.tables.items()}
    by = {"by": stage.by, "by_table": stage.by_table, "within": stage.within}
    return {"name": stage.name, "key": stage.key, **by, "tables": tables, "references": _noted(stage)}


def with_noted(view: View, noted: Mapping[str, Sequence[Any]]) -> View:
    """The view with the references or stages that a build has noted of it, if this process does not know them."""
    known = noted.get(view.name)
    if known is None or view.stages != (view,) or not isinstance(view.declared, Planned):
        return view.stages[-1]
    if known and isinstance(known[0], Mapping):
        stages: dict[str, Input] = dict(view.tables)
        for one in known:
            tables = {name: stages[read] for name, read in one["tables"].items()}
            references = _references_of(one["references"])
            stage = View(one["name"], tuple(one["key"]), tables, references, view.function, by=tuple(one["by"]))
            by = {name: tuple(columns) for name, columns in one["by_table"].items()}
            stages[stage.name] = replace(stage, by_table=by, within=one["within"])
        return replace(view, **{part: getattr(stages[view.name], part) for part in _OF_STAGES})
    return view if view.references_are_known else replace(view, declared=_references_of(known))


def _references_of(noted: Iterable[Sequence[Any]]) -> tuple[Reference, ...]:
    return tuple(Reference(source, tuple(columns), target) for source, columns, target in noted)


def source_digest(function: Callable[..., Any]) -> str:
    """What changes with a function's source: its own ``signature``, where it has one, or its text and its patterns."""
    text = getattr(function, "signature", None) or source_of(function)
    return hashlib.sha256("".join([text, *_patterns(function)]).encode()).hexdigest()


def _patterns(function: Callable[..., Any]) -> list[str]:
    """The patterns that a function names, and what they are made of, which is written outside of its text."""
    if not inspect.isfunction(function):
        return []
    named = inspect.getclosurevars(function)
    described = {name: _said(one) for name, one in sorted({**named.globals, **named.nonlocals}.items())}
    return [f"|{name} {said}" for name, said in described.items() if said is not None]


def _said(named: object) -> str | None:
    """What a pattern, a part of one or measures of its matches are; None for anything else."""
    match named:
        case Step() | Pattern():
            return named.signature
        case Predicate() | Term():
            return str(named)
        case Mapping() if named and all(isinstance(one, Term) for one in named.values()):
            return str([f"{name}: {one}" for name, one in named.items()])
    return None


def as_columns(columns: Columns | Sequence[str]) -> tuple[str, ...]:
    """One column or several, as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)
