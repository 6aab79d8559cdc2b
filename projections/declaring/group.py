"""Projection groups: views that are kept together, in one run and one commit.

A view corrects itself for ever. A bill, a mail or another system that cannot take corrections reads final results: rows
that are given out once, when a promise says that they do not change any more. No topic and no Delta table that views of
a group fill is filled twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Final, get_args

from eventstore.identifiers import require_sequence
from projections.declaring.any_table import AnyTable
from projections.declaring.columns import ColumnType, shown
from projections.declaring.naming import checked_identifier, listed
from projections.declaring.tables import CapturedTable, Table
from projections.declaring.timing.retention import Retention, retention_of
from projections.declaring.view_topics import FinalTopic, ViewTopic, named
from projections.declaring.views import View, ViewTable
from projections.errors import InvalidDefinition
from projections.faults import BadRecords

ERASURES: Final = "factfold.erasures"  # among a group's inputs: the keys of persons that were destroyed

# Longer than a source repeats itself after any failure that is repaired, and shorter than deleted rows are a burden.
HORIZON: Final = timedelta(days=30)
MOST_ROWS: Final = 1_000_000
_TABLES_OF: Final = "2026-11-29"  # when the tables of a generation changed last: older ones are built again
_LEAST_HORIZON: Final = timedelta(hours=1)  # connectors that are started again repeat seconds, or minutes


def check_finals(views: Iterable[View]) -> None:
    """Raise InvalidDefinition where final results could have personal values: no erasure would ever reach these."""
    for view in views:
        for column in _personal_columns(view) if view.final is not None else ():
            raise InvalidDefinition(
                f"view {view.name!r} has final results, which no erasure changes, and reads personal column {column!r}",
                remedy="let the view read a table that is declared without the column, or leave final=… away",
                place=view.place,
            )


def _personal_columns(view: View) -> Iterator[str]:
    for table in view.tables.values():
        yield from table.personal if isinstance(table, AnyTable) else ()
    for read in view.inputs:
        yield from _personal_columns(read)


def has_finals(views: Iterable[View]) -> bool:
    """True if any of the views has final results."""
    return any(view.final is not None for view in views)


def rows_topics(views: Iterable[View]) -> Mapping[str, str]:
    """The views whose rows fill a topic or a Delta table, by its name or path."""
    return {place: view.name for view in views for place in view.filled}


def lakes_of(views: Iterable[View]) -> Sequence[str]:
    """The paths of the Delta tables that views fill."""
    return [view.lake for view in views if view.lake is not None]


def results_topics(views: Iterable[View]) -> Mapping[str, str]:
    """The views whose final results fill a topic, by its name."""
    topics = ((view, view.final.published) for view in views if view.final is not None)
    return {topic.name: view.name for view, topic in topics if topic is not None}


def topics_of(views: Iterable[View]) -> Iterator[ViewTopic | FinalTopic]:
    """The topics that views fill."""
    for view in views:
        filled = view.topic, None if view.final is None else view.final.published
        yield from (topic for topic in filled if topic is not None)


def check_topics(group: str, views: Sequence[View], *, read: Collection[str], personal: bool) -> None:
    """Raise InvalidDefinition where views of a group would fill a topic twice, or one that the group reads.

    ``personal`` is whether the group has personal columns, which no Delta table may get.
    """
    names = [*(topic.name for topic in topics_of(views)), *lakes_of(views)]
    if personal and (lakes := lakes_of(views)):
        raise InvalidDefinition(
            f"group {group!r} has personal columns, and versions of the table {lakes[0]!r} would retain erased values",
            remedy="leave lake=… away, or leave the personal columns out of the group",
        )
    for name in names:
        if names.count(name) > 1:
            raise _refused(name, f"is filled {_by(name, views)} of group {group!r}")
        if name in read:
            raise _refused(name, f"is filled by group {group!r}, which reads it too")


def _by(topic: str, views: Sequence[View]) -> str:
    view = rows_topics(views).get(topic)
    both = view is not None and view == results_topics(views).get(topic)
    return f"with the rows and the final results of view {view!r}" if both else "by two views"


def _refused(topic: str, why: str) -> InvalidDefinition:
    remedy = "fill every topic and table once; within a group, a view reads another one by its name"
    return InvalidDefinition(f"{named(topic)} {why}", remedy=remedy)


@dataclass(frozen=True, eq=False)
class ProjectionGroup:
    """The unit of a run: its views share state tables and one progress, and publish in one transaction.

    Views that the listed ones read are updated in the same run. They are served if they are listed too.

    Attributes:
        name: The name of the group.
        views: The views.
        version: The version of the definition.
        transactions: Topic prefixes of connectors with ``PostgresSource(transactions=True)``. Batches end at
            transactions of these sources, and no view ever shows half of one. For PostgreSQL and JSON, with
            exactly-once delivery.
        bad_records: What happens to records that cannot be read.
        most_rows: How many rows a stage of all rows may compute: one that compares no equal columns computes all of
            them whenever one changes. A build or a batch with more is refused.
        horizon: How long a deleted row is known to be deleted: at least an hour, None for ever. A later change that may
            be of such a row stops the run with ProjectionError.

    Raises:
        InvalidDefinition: Views use one name for different tables, transactions are in Avro, or the horizon is too
            short.

    Examples:
        >>> shop_views = ProjectionGroup("shop", [orders_by_region])
    """

    name: str
    views: Sequence[View]
    version: int = 1
    transactions: tuple[str, ...] = ()
    bad_records: BadRecords = "fail"
    horizon: timedelta | None = HORIZON
    most_rows: int = MOST_ROWS
    declared: ProjectionGroup | None = field(default=None, repr=False)  # of a resolved one: what it was made of

    def __post_init__(self) -> None:
        checked_identifier(self.name, what="projection group")
        require_sequence(self.views, "views", takes="a list of views")
        if self.bad_records not in get_args(BadRecords):
            raise InvalidDefinition(
                f"group {self.name!r} has bad_records={self.bad_records!r}",
                remedy=f"choose one of {', '.join(get_args(BadRecords))}",
            )
        if self.horizon is not None and self.horizon < _LEAST_HORIZON:
            raise InvalidDefinition(
                f"group {self.name!r} forgets deleted rows after {self.horizon}: a source may repeat older changes",
                remedy="give it at least an hour, better weeks. None retains them for ever",
            )
        if not self.views:
            raise InvalidDefinition(f"group {self.name!r} has no view", remedy="give it at least one")
        for view in self.views:
            self._require_view(view)
        _ = self.tables
        check_topics(self.name, self.all_views, read=self.topics, personal=self.personal)
        check_finals(self.all_views)
        if all(view.by for view in self.all_views):  # otherwise once Spark has planned the others
            _ = self.retention
        for prefix in self.transactions:
            self._check_transactions(prefix)

    def _require_view(self, view: object) -> None:
        if not isinstance(view, View):
            raise InvalidDefinition(
                f"group {self.name!r} has {getattr(view, '__name__', view)!r}, a {type(view).__name__} and no view",
                remedy='declare it with @view(key="…") or sql_view(…)',
            )

    def __repr__(self) -> str:
        """One line: the name and the views."""
        return f"<ProjectionGroup {self.name}: {listed([view.name for view in self.views])}>"

    def require_few(self, view: View, rows: int) -> None:
        """Refuse to compute all rows of a stage if they are more than the group allows. Raises InvalidDefinition."""
        if view.within == "all" and rows > self.most_rows:
            raise InvalidDefinition(
                f"view {view.name!r} computes {rows:,} rows whenever one changes, more than {self.most_rows:,}",
                remedy="compare equal columns in its query, partition its windows, or allow more: most_rows=…",
                place=view.place,
            )

    def _check_transactions(self, prefix: str) -> None:
        captured = self.captured_by(prefix)
        if not captured:
            raise InvalidDefinition(
                f"group {self.name!r} keeps transactions of {prefix!r} whole, and reads no topic of that prefix",
                remedy=f"name the topic prefix of a connector it reads: {', '.join(self.topics)}",
            )
        if avro := [topic for topic in captured if topic in self.avro_changelogs]:
            raise InvalidDefinition(
                f"group {self.name!r} keeps transactions of {prefix!r} whole, and {', '.join(avro)} is Avro",
                remedy="capture with encoding=PlainJson() or JsonWithSchemas(), or leave transactions away",
            )

    def captured_by(self, prefix: str) -> tuple[str, ...]:
        """Return the changelog topics that a connector of this topic prefix fills."""
        captured = (t.topic for t in self.tables.values() if isinstance(t, CapturedTable))
        return tuple(topic for topic in dict.fromkeys(captured) if _is_captured_by(prefix, topic))

    @cached_property
    def all_views(self) -> tuple[View, ...]:
        """Every view of the run, after the views that it reads."""
        views: dict[str, View] = {}
        for view in self.views:
            self._keep(view, views)
        return tuple(views.values())

    def _keep(self, view: View, views: dict[str, View]) -> None:
        for read in view.inputs:
            self._keep(read, views)
        if views.setdefault(view.name, view) is not view:
            raise InvalidDefinition(f"group {self.name!r} has two views {view.name!r}", remedy="rename one of them")

    def view(self, name: str) -> View:
        """Return the view of a name. Raises InvalidDefinition if no view of the run has it."""
        found = next((view for view in self.all_views if view.name == name), None)
        if found is None:
            known = listed([view.name for view in self.all_views])
            raise InvalidDefinition(f"group {self.name!r} has no view {name!r}", remedy=f"name one of {known}")
        return found

    @property
    def stages(self) -> tuple[View, ...]:
        """Every view of the run, and in the place of each that Spark has cut the stages of it."""
        stages = tuple(stage for view in self.all_views for stage in view.stages)
        names = Counter(stage.name for stage in stages)
        if twice := next((name for name, number in names.items() if number > 1), None):
            raise InvalidDefinition(f"group {self.name!r} has two views {twice!r}", remedy="rename one of them")
        return stages

    @cached_property
    def names(self) -> Mapping[str, AnyTable]:
        """The tables that the parameters of the views mean. A table may have several names."""
        tables: dict[str, AnyTable] = {}
        for view in self.all_views:
            for parameter, table in view.tables.items():
                if isinstance(table, AnyTable) and tables.setdefault(parameter, table) is not table:
                    raise InvalidDefinition(
                        f"two views of group {self.name!r} mean different tables by {parameter!r}",
                        remedy="rename one parameter, or give the views groups of their own",
                    )
        return tables

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """Every table over a topic once, by the first of its names, which is that of its state."""
        if self.declared is not None:
            return self.declared.tables
        tables: dict[int, tuple[str, Table]] = {}
        for name, table in self.names.items():
            if isinstance(table, Table):
                tables.setdefault(id(table.whole), (name, table.whole))
        return dict(tables.values())

    def name_of(self, table: AnyTable) -> str:
        """Return the name of a table in ``tables``."""
        return next(name for name, known in self.tables.items() if known is table.whole)

    def resolved(self, columns: Mapping[str, Mapping[str, ColumnType]]) -> ProjectionGroup:
        """Return the group with views that read only tables, given the columns of the views that others read."""
        views: dict[str, View] = {}
        read: dict[str, ViewTable] = {}  # one each, however many views read it
        for view in self.stages:
            tables = {
                name: read.get(t.name, views[t.name]) if isinstance(t, View) else t for name, t in view.tables.items()
            }
            views[view.name] = bound = replace(view, tables=tables)
            if view.name in columns:
                read[view.name] = as_table(bound, columns[view.name])
        return replace(self, views=tuple(views[view.name] for view in self.views), declared=self)

    @property
    def retention(self) -> Retention | None:
        """When rows of streams with promises are forgotten, None without promises. Raises InvalidDefinition."""
        return retention_of(self.tables, self.stages, served=self.views)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics the group reads, each once."""
        return tuple(dict.fromkeys(table.topic for table in self.tables.values()))

    @property
    def personal(self) -> bool:
        """Whether any table has personal columns."""
        return any(table.personal for table in self.tables.values())

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the group follows: its topics, and the erasures if it has personal columns."""
        return (*self.topics, ERASURES) if self.personal else self.topics

    @property
    def avro_changelogs(self) -> tuple[str, ...]:
        """The topics of captured tables whose records are Avro."""
        return tuple(dict.fromkeys(t.topic for t in self.tables.values() if t.is_avro))

    @property
    def filled(self) -> tuple[str, ...]:
        """The topics that its views fill."""
        return tuple(topic.name for topic in topics_of(self.all_views))

    @property
    def history_topics(self) -> tuple[str, ...]:
        """The topics that must retain every change, because versions are read from them."""
        return tuple(dict.fromkeys(t.topic for t in self.tables.values() if t.holds_versions))

    @property
    def headed_topics(self) -> frozenset[str]:
        """The topics whose records are read with headers: event time, source, or the id that values are sealed for."""
        return frozenset(table.topic for table in self.tables.values() if table.is_headed)

    def signatures(self) -> dict[str, str]:
        """Return 16 hexadecimal digits for each view, which change with its meaning or that of what it reads."""
        return {view.name: hashlib.sha256(view.signature().encode()).hexdigest()[:16] for view in self.all_views}

    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with the meaning of any view of the group."""
        signatures = (view.signature() for view in self.all_views)
        text = "\n".join([self.name, str(self.version), _TABLES_OF, *signatures])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_table(view: View, columns: Mapping[str, ColumnType]) -> ViewTable:
    """What another view reads of a view."""
    return ViewTable(f"view {view.name}", view.key, shown(columns), name=view.name, view=view)


def _is_captured_by(prefix: str, topic: str) -> bool:
    """Whether a topic is `prefix.schema.table`; the prefix of another connector may begin with this one and a dot."""
    begun, _, table = topic.removeprefix(f"{prefix}.").partition(".")
    return topic.startswith(f"{prefix}.") and bool(begun) and bool(table) and "." not in table
