"""The table store: generations of state and views in a SQL database, served under stable names.

What both databases share is here and in the neighbouring modules of statements. What they do differently is abstract.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import sqlalchemy as sa
import stamina

from eventstore.backends.sql.engines import refuse_writes
from eventstore.shown_urls import shown_url
from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.errors import InvalidDefinition, KeyNotUnique, ProjectionError, ViewInUse
from projections.planning.planner import plan
from projections.stores import finals, forgetting, runs
from projections.stores.arrow import Target
from projections.stores.dialects import Dialect, NameSpace
from projections.stores.handing_over import hand_over_generation, hands_over
from projections.stores.layout import (
    GenerationLayout,
    Named,
    ViewLayout,
    aside_table,
    generation_name,
    lay_out,
    passed_table,
    retained_table,
)
from projections.stores.locks import runner_of
from projections.stores.outbox import waiting
from projections.stores.own_tables import create_own_tables, own_tables
from projections.stores.runs import BUILT, SERVING, Progress, Run, RunState, ViewColumns, superseded
from projections.stores.view_changes import key_not_unique, repeated_keys

_TRIES = 12
_LONGEST_NAME = 63  # of PostgreSQL's names, in bytes; ours are ASCII


class TableStore(ABC):
    """State and views of projection groups in one database, generation by generation, and the runs that keep them."""

    dialect: ClassVar[Dialect]
    serving_schema: str | None = None  # where the stable view names live
    minus: ClassVar[Callable[..., sa.CompoundSelect[Any]]]
    """How this database subtracts one set of rows from another."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place})"

    @property
    def place(self) -> str:
        """How an error names the database: without its password."""
        return shown_url(self._engine.url)

    @abstractmethod
    def check_master(self, master: str) -> None:
        """Refuse a Spark whose executors could not reach the store; raises ProjectionError."""

    @abstractmethod
    def exclusive(self, group: str, *, role: str) -> contextlib.AbstractContextManager[None]:
        """Hold a role of a group (``REBUILDER``, ``runner_of``) for the length of the block; raises RunAlreadyActive.

        A killed process loses what it held.
        """

    @abstractmethod
    def is_held(self, group: str, *, role: str) -> bool:
        """Whether any process holds a role of a group."""

    @abstractmethod
    def target(self, table: sa.Table, run: Run | None = None) -> Target:
        """Where rows of a table of a generation are written and read; with a ``run``, written by its holder alone."""

    @abstractmethod
    def snapshot(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """A transaction whose every query sees the same moment."""

    @abstractmethod
    def _reachable(self) -> contextlib.AbstractContextManager[None]:
        """Type what the database reports, without the password."""

    @abstractmethod
    def _begin_staging(self, connection: sa.Connection) -> None:
        """Set a transaction over working tables up."""

    @abstractmethod
    def _add_key(self, connection: sa.Connection, table: sa.Table, key: tuple[str, ...]) -> None:
        """Make columns the key of a loaded table; raises IntegrityError where they cannot be."""

    @abstractmethod
    def _index_working_tables(self, connection: sa.Connection, layout: GenerationLayout) -> None:
        """Add the indexes without which the statements over working tables would be slow here."""

    @abstractmethod
    def _named(self, connection: sa.Connection, name: str) -> Named | None:
        """What the database has under a stable name."""

    @abstractmethod
    def _point(self, connection: sa.Connection, name: str, view: ViewLayout) -> None:
        """Let a stable view show a generation's."""

    @abstractmethod
    def _drop_tables(self, connection: sa.Connection, run: Run) -> None:
        """Remove whatever tables a generation has."""

    @abstractmethod
    def size(self, run: Run) -> int | None:
        """The bytes of a generation's tables and indexes; None where the database cannot tell."""

    def read_only(self) -> Self:
        """Let the database refuse whatever this store would write from now on."""
        refuse_writes(self._engine)
        return self

    def is_prepared(self) -> bool:
        """Whether our own tables are there, as `prepare` makes them."""
        with self.looking() as connection:
            own = own_tables(connection).runs
            return sa.inspect(connection).has_table(own.name, schema=own.schema)

    def close(self) -> None:
        """Close the connections of the pool."""
        self._engine.dispose()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction that lasts."""
        with self._reachable(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def staging(self, run: Run) -> Iterator[sa.Connection]:
        """A transaction over the working tables of a run we still hold, else ProjectionError.

        Their loss in a crash of the server is noticed by the mark of the batch, so the disk need not be waited for.
        """
        with self.transaction() as connection:
            self._begin_staging(connection)
            runs.require_token(connection, run)
            yield connection

    @contextlib.contextmanager
    def looking(self) -> Iterator[sa.Connection]:
        """A look at our own tables: each query by itself, waiting for no writer."""
        with self._reachable(), self._engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            yield connection

    def prepare(self) -> None:
        """Create our own tables where they are missing, or add what an earlier release did not have."""
        with self.transaction() as connection:
            create_own_tables(connection)

    def layout(self, group: ProjectionGroup, run: Run, view_columns: ViewColumns) -> GenerationLayout:
        """The tables of a generation."""
        return lay_out(group, run.generation, view_columns, dialect=self.dialect)

    def space(self, run: Run) -> NameSpace:
        """Where the tables of a generation belong."""
        return self.dialect.name_space(generation_name(run.group, run.generation))

    def create_table(self, name: str, columns: Mapping[str, ColumnType]) -> sa.Table:
        """Create a table of a user's, next to the views; raises InvalidDefinition if its name is taken."""
        typed = (sa.Column(column, self.dialect.column_type(kind)) for column, kind in columns.items())
        table = sa.Table(name, sa.MetaData(schema=self.serving_schema), *typed)
        with self.transaction() as connection:
            if (existing := self._named(connection, name)) is not None:
                raise _name_taken(f"table {name!r}", existing, place=self.place)
            table.create(connection)
        return table

    def drop_table(self, table: sa.Table) -> None:
        """Drop such a table."""
        with self.transaction() as connection:
            table.drop(connection)

    def claim(self, run: Run) -> Run:
        """Take the run over: any other holder's next commit fails."""
        with self.transaction() as connection:
            return runs.claim(connection, run)

    def state(self, run: Run) -> RunState | None:
        """The row of a generation; None where it was dropped."""
        with self.looking() as connection:
            return runs.state(connection, run)

    def states(self, group: str | None = None, *statuses: str) -> list[RunState]:
        """The rows of a group's generations, or of all groups', in the order of their numbers."""
        with self.looking() as connection:
            return runs.states(connection, group, *statuses)

    def record(
        self,
        run: Run,
        *,
        built: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        status: str | None = None,
        within: sa.Connection | None = None,
    ) -> None:
        """Note what has become of a run we hold, all of it at once, also within a transaction; ProjectionError."""
        with self.transaction() if within is None else contextlib.nullcontext(within) as connection:
            runs.require_token(connection, run)
            if progress is not None:
                runs.set_progress(connection, run, progress)
            if built is not None:
                runs.set_built(connection, run, built)
            if status is not None:
                runs.update(connection, run, status=status)

    def set_paused(self, group: str, *, paused: bool) -> Run:
        """Ask the serving run's runner to stand still, or to go on; NoServingGeneration."""
        with self.transaction() as connection:
            run = runs.serving_state(connection, group).run
            runs.update(connection, run, paused=paused)
        return run

    def set_held(self, run: Run, *, held: bool) -> None:
        """Ask a run's runner to wait for a cut-over; it counts only while the group has a rebuilder."""
        with self.transaction() as connection:
            runs.update(connection, run, held=held)

    def begin_generation(self, group: ProjectionGroup, view_columns: ViewColumns) -> tuple[Run, GenerationLayout]:
        """Create the tables of a new generation, without indexes; those that never served are removed."""
        with self.transaction() as connection:
            self._require_names(connection, group)
            # Not the number of one that is removed here: a task of its builder may still be writing.
            number = runs.next_generation(connection, group.name)
            for unfinished in runs.states(connection, group.name, runs.BUILDING, BUILT):
                self.remove(connection, unfinished.run)
            run = Run(group.name, number, group.fingerprint(), uuid.uuid4().hex, group.version)
            layout = self.layout(group, run, view_columns)
            if layout.metadata.schema:
                connection.execute(sa.schema.CreateSchema(layout.metadata.schema))
            layout.metadata.create_all(connection, checkfirst=False)
            runs.insert_run(connection, run)
        return run, layout

    def index_generation(self, group: ProjectionGroup, layout: GenerationLayout) -> None:
        """Add the keys and the indexes of referenced columns, then analyze: after loading, which is quicker."""
        with self.transaction() as connection:
            self.index_tables(connection, layout)
            self.index_views(connection, layout)
        self.analyze(layout)

    def index_tables(self, connection: sa.Connection, layout: GenerationLayout) -> None:
        """Add what a batch looks the rows of the state up by."""
        self._index_working_tables(connection, layout)
        for name, tables in layout.tables.items():
            try:
                with connection.begin_nested():
                    self._add_key(connection, tables.state, tables.row_key)
            except sa.exc.IntegrityError as error:
                raise _loaded_twice(name, layout.name) from error
        self._add_indexes(connection, layout, of_views=False)
        forgetting.note_loaded(connection, layout, now=int(time.time()))

    def index_views(self, connection: sa.Connection, layout: GenerationLayout) -> None:
        """Add the keys of the views, and what a batch looks their rows up by; KeyNotUnique."""
        for view in layout.views.values():
            forgetting.require_times(connection, view, view.view)
            self._add_view_key(connection, view)
        self._add_indexes(connection, layout, of_views=True)

    def _add_indexes(self, connection: sa.Connection, layout: GenerationLayout, *, of_views: bool) -> None:
        views = [view.view for view in layout.views.values()]
        for index in reference_indexes(layout):
            if (index.table in views) is of_views:
                connection.execute(sa.schema.CreateIndex(index))

    def analyze(self, layout: GenerationLayout) -> None:
        """Let the database's planner know what was loaded."""
        with self.transaction() as connection:
            for table in layout.metadata.sorted_tables:
                connection.execute(sa.text(f"ANALYZE {connection.dialect.identifier_preparer.format_table(table)}"))

    def _add_view_key(self, connection: sa.Connection, view: ViewLayout) -> None:
        if view.key.nullable:
            if key := connection.execute(repeated_keys(view, view.view)).one_or_none():
                raise key_not_unique(view, key)
            index = sa.Index(_index_name(f"{view.view.name}$key"), *view.key.parts(view.view))
            connection.execute(sa.schema.CreateIndex(index))
            return
        try:
            with connection.begin_nested():
                self._add_key(connection, view.view, tuple(view.key.columns))
        except sa.exc.IntegrityError as error:
            raise key_not_unique(view, connection.execute(repeated_keys(view, view.view)).one()) from error

    def switch(
        self, group: ProjectionGroup, run: Run, layout: GenerationLayout, *, recreated: Progress | None = None
    ) -> bool:
        """Point the stable view names to a generation, in one transaction, unless readers would go back in time.

        Returns False, and changes nothing, where the serving run is ahead in any partition; those ``recreated`` do not
        count. A query on the view holds it up; after a minute of tries it ends with ViewInUse. What a topic lacks is
        worked out once: then the tries are within the transaction, else each is one, and holds up no fence.
        """
        outer, inner = (1, _TRIES) if hands_over(layout) else (_TRIES, 1)
        for attempt in _tries(outer):
            with attempt, self.transaction() as connection:
                return self._switch(connection, group, run, layout, recreated or {}, tries=inner)
        raise AssertionError("the last attempt returns or raises")

    def _switch(
        self,
        connection: sa.Connection,
        group: ProjectionGroup,
        run: Run,
        layout: GenerationLayout,
        recreated: Progress,
        *,
        tries: int,
    ) -> bool:
        states = {s.run.generation: s for s in runs.states(connection, group.name, lock=True)}
        runs.require_token(connection, run)
        ours = states.pop(run.generation).progress
        previous = [state for state in states.values() if state.status == SERVING]
        if not all(runs.is_ahead(ours, state.progress, recreated=recreated) for state in previous):
            return False
        self._require_names(connection, group)
        hand_over_generation(connection, layout, group.name)
        finals.note_rebuilt(connection, layout, group.name)
        for attempt in _tries(tries):
            with attempt, self._reachable(), connection.begin_nested():
                for view in group.views:
                    self._point(connection, view.name, layout.views[view.name])
        for retired in previous:
            runs.update(connection, retired.run, status=runs.RETIRED, paused=False, held=False)
        runs.update(connection, run, status=SERVING, paused=any(s.paused for s in previous))
        return True

    def _require_names(self, connection: sa.Connection, group: ProjectionGroup) -> None:
        """Raise InvalidDefinition where a view's name belongs to anything but a generation of the same group."""
        for view in group.views:  # those that are only read by others have no stable name
            existing = self._named(connection, view.name)
            if existing is not None and not existing.is_of(group.name):
                raise _name_taken(f"view {view.name!r}", existing, place=self.place)

    def let_go(self, run: Run, layout: GenerationLayout, *, before: int, most: int) -> Mapping[str, int]:
        """By the entries of deletions, which are in the order of time."""
        with self.transaction() as connection:
            runs.require_token(connection, run)
            return forgetting.let_go(connection, layout, before=before, most=most)

    def forget(self, run: Run, layout: GenerationLayout, *, upto: int | None, most: int) -> Mapping[str, int]:
        """By the index of each table's time."""
        if layout.retained is None:
            return {}
        with self.transaction() as connection:
            runs.require_token(connection, run)
            if upto is not None:
                forgetting.raise_floor(connection, layout.retained, upto=upto)
            return forgetting.forget(connection, layout, most=most)

    def retained(self, run: Run) -> Mapping[str, Any]:
        """As the generation has counted them."""
        space = self.space(run)
        with self.looking() as connection:
            return forgetting.standing(connection, retained_table(space), aside_table(space))

    def settled(self, run: Run) -> Mapping[str, int]:
        """As the generation has counted them."""
        space = self.space(run)
        with self.looking() as connection:
            return forgetting.settled(connection, passed_table(space))

    def waiting(self) -> Mapping[str, Mapping[str, int]]:
        """The rows that wait to be published, by group and topic."""
        with self.looking() as connection:
            return waiting(connection)

    def final_results(self) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """What was given out as final, by group and view."""
        with self.looking() as connection:
            return finals.standing(connection)

    def drop(self, run: Run) -> None:
        """Drop a generation's tables and its row."""
        with self.transaction() as connection:
            self.remove(connection, run)

    def remove(self, connection: sa.Connection, run: Run) -> None:
        """Drop a generation's tables and forget it."""
        self._drop_tables(connection, run)
        runs.delete_run(connection, run)

    def progress(self, run: Run) -> Progress:
        """The next offset of every partition."""
        state = self.state(run)
        return {} if state is None else state.progress

    def serving_state(self, group: str) -> RunState:
        """The row of the serving generation; raises NoServingGeneration."""
        return runs.serving_of(self.states(group, SERVING), group)

    def serving(self, group: ProjectionGroup, view_columns: ViewColumns) -> tuple[Run, GenerationLayout]:
        """The serving run of a group; raises NoServingGeneration or DefinitionChanged."""
        return self._unchanged(group, self.serving_state(group.name), view_columns)

    def generation(
        self, group: ProjectionGroup, number: int, view_columns: ViewColumns
    ) -> tuple[Run, GenerationLayout]:
        """A generation of the group's present definition; raises ProjectionError or DefinitionChanged."""
        state = self.state(Run(group.name, number, ""))
        if state is None:
            raise ProjectionError(
                f"projection group {group.name!r} has no generation {number}",
                remedy="list the generations: factfold projections status",
                place=group.name,
                code="generation-missing",
            )
        return self._unchanged(group, state, view_columns)

    def _unchanged(
        self, group: ProjectionGroup, state: RunState, view_columns: ViewColumns
    ) -> tuple[Run, GenerationLayout]:
        runs.require_unchanged(group, state, view_columns)
        return state.run, self.layout(group, state.run, view_columns)

    def serve(self, group: ProjectionGroup, run: Run, layout: GenerationLayout, progress: Progress) -> None:
        """Let a generation serve that is built up to ``progress``; raises ProjectionError where it is behind."""
        self.record(run, progress=progress)
        if not self.switch(group, run, layout):
            raise superseded(run)

    def generations(self) -> list[dict[str, Any]]:
        """Every generation of every group, with its status, progress and version."""
        self.prepare()
        rows, final = self.waiting(), self.final_results()
        return [
            {
                **self._standing(state),
                "deletions_settled": self.settled(state.run),
                "retained": self.retained(state.run),
                "topics": rows.get(state.run.group, {}) if state.status == SERVING else {},
                "final_results": final.get(state.run.group, {}) if state.status == SERVING else {},
                **_built(state),
            }
            for state in self.states()
        ]

    def standing(self) -> list[dict[str, Any]]:
        """The same of a store that was prepared, for frequent looks: by what it was built, and nothing counted."""
        rows = self.waiting()
        return [
            {
                **self._standing(state),
                "topics": rows.get(state.run.group, {}) if state.status == SERVING else {},
                **_built(state),
                "fingerprint": state.run.fingerprint,
                **{name: state.built.get(name, {}) for name in ("columns", "references")},
            }
            for state in self.states()
        ]

    def _standing(self, state: RunState) -> dict[str, Any]:
        return {
            "group": state.run.group,
            "generation": state.run.generation,
            "version": state.run.version,
            "status": state.status,
            "paused": state.paused,
            "holder": state.holder if self.is_held(state.run.group, role=runner_of(state.run)) else None,
            "progress": state.progress,
        }


def _built(state: RunState) -> dict[str, Any]:
    loaded = [name for kind in ("tables", "views") for name in state.built.get(kind, {})]
    return {"loaded": loaded, "updated_at": state.updated_at}


def _tries(attempts: int) -> Iterable[stamina.Attempt]:
    """Tries for a view that a query holds, about a minute of them."""
    return stamina.retry_context(on=ViewInUse, attempts=attempts, timeout=60.0, wait_initial=0.2, wait_max=2.0)


def reference_indexes(layout: GenerationLayout) -> list[sa.Index]:
    """The indexes by which a batch finds rows: foreign keys, groups, sides of a view, keys of persons."""
    indexes: dict[str, sa.Index] = {}
    for view in layout.views.values():
        for table, parts, named in _looked_up(view):
            name = _index_name(f"{table.name}$by_{'_'.join(named)}")
            if name not in indexes:
                indexes[name] = sa.Index(name, *parts)
    for table, times in layout.retained.rows.values() if layout.retained else ():
        column = next(iter(times))
        name = _index_name(f"{table.name}$by_time_{column}")
        indexes.setdefault(name, sa.Index(name, table.c[column]))
    return list(indexes.values())


def _index_name(name: str) -> str:
    """The name, or its beginning with a digest where a database would cut it."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 13]}_{digest}"


def _looked_up(view: ViewLayout) -> Iterator[tuple[sa.Table, Sequence[sa.ColumnElement[Any]], tuple[str, ...]]]:
    if view.definition.final is not None:
        yield view.view, [view.view.c[view.definition.final.on]], ("time", view.definition.final.on)
    if view.definition.by:
        for name, role in view.roles.items():
            times = [] if view.near is None else [view.near.times[name]]
            parts = [*role.reached_by.parts(role.state), *(role.state.c[time] for time in times)]
            yield role.state, parts, ("group", *role.reached_by.columns, *times)
        if view.definition.key[: len(view.definition.by)] != view.definition.by:
            yield view.view, view.root_key.parts(view.view), ("scope", *view.root_key.columns)
        return
    walk = plan(view.definition)
    for name, role in view.roles.items():
        if role.key.nullable and role.row_key.columns.keys() != role.key.columns.keys():
            yield role.state, role.key.parts(role.state), ("key", *role.key.columns)
        for columns in walk.indexes(name):
            yield role.state, [role.state.c[c] for c in columns], columns


def _loaded_twice(table: str, generation: str) -> KeyNotUnique:
    """What nothing should lead to any more: the key is the last line of defence (docs/decisions/0043)."""
    return KeyNotUnique(
        f"a row of table {table!r} was loaded twice: tasks of a killed rebuild still wrote when the next one began",
        remedy="rebuild again: it starts from the beginning",
        place=generation,
    )


def _name_taken(named: str, existing: Named, *, place: str) -> InvalidDefinition:
    owner = f", which shows {existing.generation}" if existing.generation else ""
    return InvalidDefinition(
        f"{named} has the name of a {existing.kind} of this database{owner}",
        remedy="give another name, or use a database of its own",
        place=place,
    )
