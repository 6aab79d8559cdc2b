"""The tables of one generation, as SQLAlchemy objects.

A generation is named ``factfold_{group}_{generation}``: a database schema of its own on PostgreSQL, a prefix of its
tables' names on SQLite; dropping it drops everything. In it,

- for each table of the group: ``state_*`` (current rows, deleted ones marked), ``staged_*`` (what the batch brings),
  and for a fold in Python ``wanted_*`` (its keys) and ``stored_*`` (the rows it goes on from);
- for each view: ``view_*``, ``result_*`` (what the function returned, then what the batch changes), and for each of its
  parameters ``affected_*`` (keys the batch reaches) and ``slice_*`` (rows handed to the function); with partial
  aggregates ``before_*`` and ``after_*`` (changed rows) and ``groups_*`` (what is kept of their groups);
- for personal columns ``destroyed`` (keys whose destruction the batch brings);
- for each table whose deleted rows go at a horizon ``deleted_*`` (an entry a deletion), and for all ``horizon``;
- ``set_aside``, the records that were not applied;
- where streams promise how late events may be ``retained`` (how far rows are forgotten) and ``late`` (what of the
  batch came too late).

Everything but state, view, deletions and the records set aside is UNLOGGED where there is such a thing: a crash of the
server empties it, the ``batch`` table with the batch's mark included, and without its mark no batch is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import sqlalchemy as sa

from projections.declaring.any_table import AnyTable
from projections.declaring.columns import AFTER, BEFORE, GROUPS, WHOLE, ColumnType, hidden, shown
from projections.declaring.group import ProjectionGroup
from projections.declaring.tables import Table, set_at
from projections.declaring.timing.nearness import Nearness
from projections.declaring.timing.retention import Retention
from projections.declaring.views import View, view_behind
from projections.stores.dialects import Dialect, Key, NameSpace

POSITION = ("_epoch", "_pos", "_offset")
_LONG = ColumnType("long")
AT = "_at"  # in ``deleted_*``: when the row was deleted here, in seconds since 1970
LOW, HIGH = "_low", "_high"  # in ``affected_*`` of a view that looks near: a range of times, null of rows without one
SIDE = "_side"  # in ``slice_*`` of it: whether a row is there before the batch (-1), after it (1), or both (0)
SINCE = "_since"  # in ``affected_*`` of versions: from which event time on the batch changes what is valid


def generation_name(group: str, generation: int) -> str:
    """The schema, or the prefix, of one generation."""
    return f"factfold_{group}_{generation}"


@dataclass(frozen=True)
class HorizonLayout:
    """What is stored of the deleted rows of one table: ``passed`` is one for all, with a row for each ``table``.

    ``emptied`` are the columns that deleted rows lose at the horizon; without them the rows go.
    """

    table: str
    deleted: sa.Table
    passed: sa.Table
    emptied: tuple[str, ...]


@dataclass(frozen=True)
class TableLayout:
    """The SQL tables behind one table of the group."""

    table: Table
    state: sa.Table
    staged: sa.Table
    wanted: sa.Table
    stored: sa.Table
    horizon: HorizonLayout | None

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, which references hold."""
        return self.table.key

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that tell two rows of the state apart."""
        return self.table.row_key


@dataclass(frozen=True)
class RoleLayout:
    """What a parameter of a view stands for: current rows and what a batch does to them, of a table or of a view.

    ``key`` is what references hold, ``row_key`` tells two rows apart. ``affected`` holds keys of the rows, or of the
    groups where the view groups them: that is what ``reached_by`` compares.
    """

    table: AnyTable
    state: sa.Table
    staged: sa.Table
    affected: sa.Table
    slice: sa.Table

    key: Key
    row_key: Key
    reached_by: Key


@dataclass(frozen=True)
class PartialLayout:
    """What a batch adds up, by BEFORE, AFTER and GROUPS: the tables it fills with it, and their columns."""

    tables: Mapping[str, sa.Table]
    columns: Mapping[str, Mapping[str, ColumnType]]

    @staticmethod
    def of(space: NameSpace, view: View, stored: Mapping[str, ColumnType]) -> PartialLayout:
        """The working tables of a view that keeps these columns."""
        rows, by = view.table(view.root).sliced, {column: stored[column] for column in view.by}
        columns = {BEFORE: rows, AFTER: rows, GROUPS: by | hidden(stored)}
        tables = {name: space.unlogged(f"{name}_{view.name}", *space.columns(c)) for name, c in columns.items()}
        return PartialLayout(tables, columns)


@dataclass(frozen=True)
class ViewLayout:
    """The SQL tables behind one view; the two copies exist while it is verified.

    ``columns`` are those that it shows, ``stored_columns`` has its partial aggregates too. ``root_key`` holds what its
    first role is reached by.
    """

    definition: View
    columns: Mapping[str, ColumnType]
    stored_columns: Mapping[str, ColumnType]
    key: Key
    root_key: Key
    view: sa.Table
    result: sa.Table
    roles: Mapping[str, RoleLayout]
    live_copy: sa.Table
    recomputed_copy: sa.Table
    partials: PartialLayout | None = None

    @property
    def name(self) -> str:
        """The view's name."""
        return self.definition.name

    @property
    def near(self) -> Nearness | None:
        """How far a changed row reaches; None if it is in the whole partition."""
        return self.definition.near.known

    @property
    def root(self) -> RoleLayout:
        """The first of the tables whose rows, or partitions of rows, are the view's."""
        return self.roles[self.definition.root]

    def working_tables(self) -> list[sa.Table]:
        """The tables that every batch fills again."""
        added_up = self.partials.tables.values() if self.partials else ()
        roles = (table for role in self.roles.values() for table in (role.affected, role.slice))
        return [self.result, *added_up, *roles]


@dataclass(frozen=True)
class RetainedLayout:
    """What is forgotten, by ``state_*`` and ``view_*``: the rows, and how far before the floor by which column.

    ``passed`` has a row for each, and ``frozen`` views with a reach: how far before the floor their rows are final.
    ``late`` holds the records that a batch sets aside for it.
    """

    passed: sa.Table
    late: sa.Table
    rows: Mapping[str, tuple[sa.Table, Mapping[str, int]]]
    frozen: Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class GenerationLayout:
    """Every SQL table of one generation; views that others read come before these."""

    name: str
    metadata: sa.MetaData
    tables: Mapping[str, TableLayout]
    views: Mapping[str, ViewLayout]
    marker: sa.Table
    destroyed: sa.Table | None
    aside: sa.Table
    horizon: sa.Table
    retained: RetainedLayout | None = None

    @cached_property
    def levels(self) -> Sequence[Sequence[ViewLayout]]:
        """The views, each in a level after those that it reads."""
        level_of: dict[sa.Table, int] = {}
        for view in self.views.values():
            level_of[view.result] = max(level_of.get(role.staged, -1) for role in view.roles.values()) + 1
        views, numbers = self.views.values(), sorted(set(level_of.values()))
        return [[view for view in views if level_of[view.result] == number] for number in numbers]

    def working_tables(self) -> list[sa.Table]:
        """The tables that a batch starts by emptying; the marker names the batch whose changes the others hold."""
        of_batch = [self.marker] if self.destroyed is None else [self.marker, self.destroyed]
        of_batch += [] if self.retained is None else [self.retained.late]
        of_tables = [t for layout in self.tables.values() for t in (layout.staged, layout.wanted, layout.stored)]
        return [*of_batch, *of_tables, *(t for layout in self.views.values() for t in layout.working_tables())]


def lay_out(
    group: ProjectionGroup,
    generation: int,
    view_columns: Mapping[str, Mapping[str, ColumnType]],
    *,
    dialect: Dialect,
) -> GenerationLayout:
    """Name and type every table of a generation; ``view_columns`` is what the view functions return."""
    group = group.resolved(view_columns)
    space = dialect.name_space(generation_name(group.name, generation))
    horizon = passed_table(space)
    tables = {name: _table_layout(space, name, table, horizon) for name, table in group.tables.items()}
    of_tables: dict[int, tuple[sa.Table, sa.Table]] = {id(t.table): (t.state, t.staged) for t in tables.values()}
    views: dict[str, ViewLayout] = {}
    for view in group.all_views:
        view_layout = views[view.name] = _view_layout(space, view, view_columns[view.name], of_tables)
        of_tables[id(view)] = view_layout.view, view_layout.result
    marker = space.unlogged("batch", sa.Column("id", sa.Text))
    destroyed = space.unlogged("destroyed", sa.Column("key_id", sa.Text)) if group.personal else None
    return GenerationLayout(
        space.generation, space.metadata, tables, views, marker, destroyed, aside_table(space), horizon,
        _retained(space, group.retention, tables, views),
    )  # fmt: skip


def _table_layout(space: NameSpace, name: str, table: Table, passed: sa.Table) -> TableLayout:
    return TableLayout(
        table,
        state_table(space, name, table),
        space.unlogged(f"staged_{name}", *space.columns(table.stored), *_staging_columns(table)),
        space.unlogged(f"wanted_{name}", *space.columns({column: table.columns[column] for column in table.key})),
        space.unlogged(f"stored_{name}", *space.columns(table.columns), sa.Column("_pos", sa.BigInteger)),
        _horizon(space, name, table, passed),
    )


def state_table(space: NameSpace, name: str, table: Table) -> sa.Table:
    """The rows of a table, each with the place of the record that set it last."""
    return space.logged(f"state_{name}", *space.columns(table.stored), *_position_columns())


def view_table(space: NameSpace, name: str, columns: Mapping[str, ColumnType]) -> sa.Table:
    """The rows of a view."""
    return space.logged(f"view_{name}", *space.columns(columns))


def passed_table(space: NameSpace) -> sa.Table:
    """How far in its source each table has lost deleted rows, and how many deletions are settled."""
    return space.logged(
        "horizon",
        sa.Column("table_name", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("epoch", "place", "settled")),
    )


def _horizon(space: NameSpace, name: str, table: Table, passed: sa.Table) -> HorizonLayout | None:
    """None for a table whose deleted rows stay."""
    if table.lost_at_horizon is None:
        return None
    key = {AT: _LONG, **{c: table.stored.get(c, _LONG) for c in table.row_key}, "_offset": _LONG}
    deleted = space.logged(f"deleted_{name}", *space.columns(key), sa.PrimaryKeyConstraint(*key))
    return HorizonLayout(name, deleted, passed, table.lost_at_horizon)


def _view_layout(
    space: NameSpace, view: View, columns: Mapping[str, ColumnType], tables: Mapping[int, tuple[sa.Table, sa.Table]]
) -> ViewLayout:
    name = view.name
    roles = {}
    for number, parameter in enumerate(view.tables):
        table = view.table(parameter)
        rows = tables[id(view_behind(table) or table.whole)]
        by = view.root_key_in(parameter) if parameter in view.roots else table.key
        time = None if view.near.known is None else view.near.known.times[parameter]
        roles[parameter] = _role_layout(space, f"{name}_{number}", table, rows, by=by, time=time, grouped=bool(view.by))
    result = space.unlogged(f"result_{name}", *space.columns(columns), *_result_columns())
    live, again = (space.apart(f"verify_{which}_{name}", *space.columns(columns)) for which in ("live", "again"))
    stored = view_table(space, name, columns)
    key = space.key({column: columns[column] for column in view.key}, nullable=view.key_may_be_null)
    of_root = {column: columns[column] for column in view.root_key}
    root_key = space.key(of_root, nullable=roles[view.root].reached_by.nullable)
    partials = PartialLayout.of(space, view, columns) if hidden(columns) else None
    return ViewLayout(view, shown(columns), columns, key, root_key, stored, result, roles, live, again, partials)


def _result_columns() -> list[sa.Column[Any]]:
    """Whether a row is retracted, and whether it is computed again from all rows of its group."""
    return [sa.Column(mark, sa.Boolean, server_default=sa.false()) for mark in ("_deleted", WHOLE)]


def _role_layout(
    space: NameSpace,
    name: str,
    table: AnyTable,
    rows: tuple[sa.Table, sa.Table],
    *,
    by: tuple[str, ...],
    time: str | None,
    grouped: bool,
) -> RoleLayout:
    nullable, by_key = table.key_may_be_null, table.row_key == table.key
    key = space.key({c: table.columns[c] for c in table.key}, nullable=nullable)
    row_key = space.key({c: table.stored.get(c, _LONG) for c in table.row_key}, nullable=nullable and by_key)
    reached_by = space.key({c: table.columns[c] for c in by}, nullable=grouped or nullable)
    since = {SINCE: _LONG} if table.holds_versions and not grouped else {}
    ranges = {} if time is None else {LOW: table.columns[time], HIGH: table.columns[time]}
    affected = space.unlogged(f"affected_{name}", *space.columns({**reached_by.columns, **since, **ranges}))
    cut = space.unlogged(f"slice_{name}", *space.columns({**table.sliced, **({SIDE: _LONG} if ranges else {})}))
    return RoleLayout(table, *rows, affected, cut, key, row_key, reached_by)


def aside_table(space: NameSpace) -> sa.Table:
    """Records that are not applied, by their places; it outlives them and goes with the generation."""
    return space.logged(
        "set_aside",
        *_aside_columns(),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("topic", "partition", "offset"),
    )


def _aside_columns() -> list[sa.Column[Any]]:
    columns: list[sa.Column[Any]] = [
        sa.Column("topic", sa.Text),
        sa.Column("partition", sa.Integer),
        sa.Column("offset", sa.BigInteger),
    ]
    columns += [sa.Column(name, sa.Text, nullable=False) for name in ("kind", "message")]
    return columns


def _retained(
    space: NameSpace,
    retention: Retention | None,
    tables: Mapping[str, TableLayout],
    views: Mapping[str, ViewLayout],
) -> RetainedLayout | None:
    if retention is None:
        return None
    rows = {f"state_{name}": (tables[name].state, times) for name, times in retention.tables.items()}
    rows |= {f"view_{name}": (views[name].view, times) for name, times in retention.views.items()}
    late = space.unlogged("late", *_aside_columns())
    return RetainedLayout(retained_table(space), late, rows, retention.frozen)


def retained_table(space: NameSpace) -> sa.Table:
    """Up to which time each table is forgotten, in microseconds since 1970, and how many of its rows were."""
    return space.logged(
        "retained",
        sa.Column("table_name", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("upto", "forgotten")),
    )


def _position_columns() -> list[sa.Column[Any]]:
    return [*(sa.Column(name, sa.BigInteger) for name in POSITION), sa.Column("_deleted", sa.Boolean)]


def _staging_columns(table: Table) -> list[sa.Column[Any]]:
    """Position, and what the fold or the changelog needs to be completed from the stored row."""
    extra: list[sa.Column[Any]] = _position_columns()
    if table.is_dense and not table.append_only:
        extra.append(sa.Column("_first", sa.BigInteger))
    if table.retain is not None:
        extra.append(sa.Column("_late", sa.Integer))
    return extra + [sa.Column(set_at(column), sa.BigInteger) for column in table.sometimes_unset]


class Named(NamedTuple):
    """What has a name: a view, or something of another kind; ``generation`` is what a view of ours shows."""

    kind: str
    generation: str | None = None

    def is_of(self, group: str) -> bool:
        """Whether it shows some generation of the group, which a newer one may replace."""
        name = self.generation or ""
        number = name.rpartition("_")[2]
        return number.isdecimal() and name == generation_name(group, int(number))
