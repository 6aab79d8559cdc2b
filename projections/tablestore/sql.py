"""The table store on a SQL database: generations of state and views, served under stable names; the port.

What both databases share is here and in the modules of statements beside; what they do differently is abstract.
"""

from __future__ import annotations

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import sqlalchemy as sa
import stamina

from projections.columns import ColumnType
from projections.errors import DefinitionChanged, RunAlreadyActive, ViewInUse
from projections.group import ProjectionGroup
from projections.planner import plan
from projections.tablestore import runs
from projections.tablestore.arrow import Target
from projections.tablestore.dialects import Dialect
from projections.tablestore.layout import GenerationLayout, ViewLayout, lay_out
from projections.tablestore.runs import Progress, Run
from projections.tablestore.staging import key_not_unique

ViewColumns = Mapping[str, Mapping[str, ColumnType]]


class SqlTableStore(ABC):
    """State and views of projection groups in one database."""

    dialect: ClassVar[Dialect]
    minus: ClassVar[str]
    """How this database subtracts one set of rows from another."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place})"

    @property
    def place(self) -> str:
        """How an error names the database: without its password."""
        return self._engine.url.render_as_string(hide_password=True)

    @abstractmethod
    def target(self, table: sa.Table) -> Target:
        """Where rows of a table of a generation are written and read."""

    @abstractmethod
    def exclusive(self, group: str) -> contextlib.AbstractContextManager[None]:
        """Hold a group against every other runner, for the length of the block; raises RunAlreadyActive."""

    @abstractmethod
    def snapshot(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """A transaction whose every query sees the same moment."""

    @abstractmethod
    def check_master(self, master: str) -> None:
        """Refuse a Spark whose executors could not reach the database; raises UnsupportedMaster."""

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
    def _point(self, connection: sa.Connection, name: str, view: ViewLayout) -> None:
        """Let a stable view show a generation's."""

    @abstractmethod
    def _drop_tables(self, connection: sa.Connection, run: Run) -> None:
        """Remove whatever tables a generation has."""

    def close(self) -> None:
        """Close the connections of the pool."""
        self._engine.dispose()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction that lasts."""
        with self._reachable(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection whose queries each see what is committed; no lock is held."""
        engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        with self._reachable(), engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def staging(self, run: Run) -> Iterator[sa.Connection]:
        """A transaction over the working tables of a run we still hold, else RunSuperseded.

        Their loss in a crash of the server is noticed by the mark of the batch, so the disk need not be waited for.
        """
        with self.transaction() as connection:
            self._begin_staging(connection)
            runs.require_token(connection, run)
            yield connection

    def prepare(self) -> None:
        """Create our own table of runs where it is missing."""
        with self.transaction() as connection:
            runs.create_runs_table(connection)

    def serving(self, group: ProjectionGroup, view_columns: ViewColumns) -> tuple[Run, GenerationLayout]:
        """The serving run of a group; raises NoServingGeneration or DefinitionChanged."""
        with self.transaction() as connection:
            run = runs.serving_run(connection, group.name)
        if run.fingerprint != group.fingerprint():
            raise DefinitionChanged(
                f"the definition of group {group.name!r} is not the one its views were built by",
                remedy="rebuild the group: the new definition becomes a new generation",
                place=run.place,
            )
        return run, lay_out(group, run.generation, view_columns, dialect=self.dialect)

    def claim(self, run: Run) -> Run:
        """Take the run over: any other holder's next commit fails."""
        with self.transaction() as connection:
            return runs.claim(connection, run)

    def progress(self, run: Run) -> Progress:
        """The next offset of every partition."""
        with self.transaction() as connection:
            return runs.read_progress(connection, run)

    def served(self, group: ProjectionGroup) -> Progress:
        """The progress of the serving run, whatever its definition; nothing where none serves."""
        with self.transaction() as connection:
            generations = runs.generations(connection, group.name, "serving")
            return runs.read_progress(connection, Run(group.name, generations[0], "")) if generations else {}

    def begin_generation(self, group: ProjectionGroup, view_columns: ViewColumns) -> tuple[Run, GenerationLayout]:
        """Create the tables of a new generation, without indexes; what unfinished ones left is removed."""
        with self.transaction() as connection:
            for generation in runs.generations(connection, group.name, "building"):
                self._drop(connection, Run(group.name, generation, ""))
            generation = runs.next_generation(connection, group.name)
            run = Run(group.name, generation, group.fingerprint(), uuid.uuid4().hex)
            layout = lay_out(group, generation, view_columns, dialect=self.dialect)
            if layout.metadata.schema:
                connection.execute(sa.schema.CreateSchema(layout.metadata.schema))
            layout.metadata.create_all(connection, checkfirst=False)
            runs.insert_run(connection, run)
        return run, layout

    def index_generation(self, group: ProjectionGroup, layout: GenerationLayout) -> None:
        """Add the keys and the indexes of referenced columns, then analyze: after loading, which is quicker."""
        with self.transaction() as connection:
            self._index_working_tables(connection, layout)
            for view in group.views:
                self._add_view_key(connection, layout.views[view.name])
            for tables in layout.tables.values():
                self._add_key(connection, tables.state, tables.row_key)
            for name, columns in sorted({(t, c) for v in group.views for t in v.tables for c in plan(v).indexes(t)}):
                connection.execute(sa.schema.CreateIndex(_reference_index(layout, name, columns)))
        with self.transaction() as connection:
            for table in layout.metadata.sorted_tables:
                connection.execute(sa.text(f"ANALYZE {connection.dialect.identifier_preparer.format_table(table)}"))

    def _add_view_key(self, connection: sa.Connection, view: ViewLayout) -> None:
        try:
            with connection.begin_nested():
                self._add_key(connection, view.view, (view.key,))
        except sa.exc.IntegrityError as error:
            key = view.view.c[view.key]
            repeated = sa.select(key).group_by(key).having(sa.or_(sa.func.count() > 1, key.is_(None))).limit(1)
            raise key_not_unique(view.name, connection.scalar(repeated)) from error

    def serve(self, group: ProjectionGroup, run: Run, layout: GenerationLayout, progress: Progress) -> None:
        """Point the stable view names to a generation that is built up to ``progress``, in one transaction.

        A query on the view holds it up; after a minute of tries it ends with ViewInUse.
        """
        for attempt in stamina.retry_context(on=ViewInUse, attempts=12, timeout=60.0, wait_initial=0.2, wait_max=2.0):
            with attempt, self.transaction() as connection:
                self._serve(connection, group, run, layout, progress)

    def _serve(
        self,
        connection: sa.Connection,
        group: ProjectionGroup,
        run: Run,
        layout: GenerationLayout,
        progress: Progress,
    ) -> None:
        runs.set_progress(connection, run, progress)
        previous = runs.generations(connection, group.name, "serving")
        for view in group.views:
            self._point(connection, view.name, layout.views[view.name])
        for generation in previous:
            runs.set_status(connection, Run(group.name, generation, ""), "retired")
        runs.set_status(connection, run, "serving")

    def generations(self) -> list[dict[str, Any]]:
        """Every generation of every group, with its status and progress."""
        self.prepare()
        with self.transaction() as connection:
            return runs.all_runs(connection)

    def discard_retired(self, group: str) -> list[int]:
        """Drop the generations that no longer serve, and return their numbers."""
        with self.transaction() as connection:
            retired = runs.generations(connection, group, "retired")
            for generation in retired:
                self._drop(connection, Run(group, generation, ""))
        return retired

    def _drop(self, connection: sa.Connection, run: Run) -> None:
        self._drop_tables(connection, run)
        runs.delete_run(connection, run)


def already_active(group: str) -> RunAlreadyActive:
    """The error of a second runner."""
    return RunAlreadyActive(
        f"another runner holds projection group {group!r}",
        remedy="stop it first, or let it go on: one runner keeps a group's views",
        place=group,
    )


def _reference_index(layout: GenerationLayout, table: str, columns: Sequence[str]) -> sa.Index:
    prefix, state = "" if layout.metadata.schema else f"{layout.name}$", layout.tables[table].state
    name = f"{prefix}by_{'_'.join(columns)}__{table}"[: None if prefix else 63]
    return sa.Index(name, *(state.c[column] for column in columns))
