"""The PostgreSQL table store: generations of state and views in one database, served by database views."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
import stamina

from projections.columns import ColumnType
from projections.errors import DefinitionChanged, TableStoreUnavailable, ViewInUse
from projections.group import ProjectionGroup
from projections.planner import plan
from projections.tablestore import runs
from projections.tablestore.arrow import Target
from projections.tablestore.layout import GenerationLayout, ViewLayout, generation_schema, lay_out
from projections.tablestore.runs import Progress, Run
from projections.tablestore.staging import key_not_unique

_GRANTS = sa.text(
    "SELECT grantee, privilege_type FROM information_schema.role_table_grants"
    " WHERE table_schema = :schema AND table_name = :view AND grantee <> grantor"
)
ViewColumns = Mapping[str, Mapping[str, ColumnType]]


class PostgresTableStore:
    """State and views of projection groups in one PostgreSQL database.

    ``url`` is SQLAlchemy's (``postgresql+psycopg://…``); ``serving_schema`` is where the stable view names live.
    """

    def __init__(self, url: str, *, serving_schema: str = "public") -> None:
        self._url = sa.make_url(url)
        self._engine = sa.create_engine(self._url, pool_pre_ping=True)
        self._serving_schema = serving_schema

    def __repr__(self) -> str:
        return f"PostgresTableStore({self._url.render_as_string(hide_password=True)})"

    @property
    def uri(self) -> str:
        """Libpq's URI of the database, password included: for ADBC, never for print."""
        url = self._url
        user, password, database = (quote(text or "", safe="") for text in (url.username, url.password, url.database))
        return f"postgresql://{user}:{password}@{url.host}:{url.port or 5432}/{database}"

    def target(self, table: sa.Table) -> Target:
        """Where ADBC writes a table of a generation."""
        return Target(self.uri, str(table.schema), table.name)

    def close(self) -> None:
        """Close the connections of the pool."""
        self._engine.dispose()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction that lasts."""
        with _reachable(self._url), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def staging(self, run: Run) -> Iterator[sa.Connection]:
        """A transaction over the working tables of a run we still hold, else RunSuperseded.

        Their loss in a crash of the server is noticed by the mark of the batch, so the disk need not be waited for.
        """
        with self.transaction() as connection:
            connection.execute(sa.text("SET LOCAL synchronous_commit = off"))
            runs.require_token(connection, run)
            yield connection

    @contextlib.contextmanager
    def exclusive(self, group: str) -> Iterator[None]:
        """Hold a group against every other runner, for the length of the block; raises RunAlreadyActive."""
        with _reachable(self._url), self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            runs.lock(connection, group)
            try:
                yield
            finally:
                runs.unlock(connection, group)

    def prepare(self) -> None:
        """Create our own schema where it is missing."""
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
        return run, lay_out(group, run.generation, view_columns)

    def claim(self, run: Run) -> Run:
        """Take the run over: any other holder's next commit fails."""
        with self.transaction() as connection:
            return runs.claim(connection, run)

    def progress(self, run: Run) -> Progress:
        """The next offset of every partition."""
        with self.transaction() as connection:
            return runs.read_progress(connection, run)

    def begin_generation(self, group: ProjectionGroup, view_columns: ViewColumns) -> tuple[Run, GenerationLayout]:
        """Create the tables of a new generation, without indexes; what unfinished ones left is removed."""
        with self.transaction() as connection:
            for generation in runs.unfinished_generations(connection, group.name):
                self._drop(connection, Run(group.name, generation, ""))
            generation = runs.next_generation(connection, group.name)
            run = Run(group.name, generation, group.fingerprint(), uuid.uuid4().hex)
            layout = lay_out(group, generation, view_columns)
            connection.execute(sa.schema.CreateSchema(layout.schema))
            layout.metadata.create_all(connection, checkfirst=False)
            runs.insert_run(connection, run)
        return run, layout

    def index_generation(self, group: ProjectionGroup, layout: GenerationLayout) -> None:
        """Add the keys and the indexes of referenced columns, then analyze: after loading, which is quicker."""
        with self.transaction() as connection:
            connection.execute(sa.text("SET LOCAL maintenance_work_mem = '256MB'"))
            for view in group.views:
                _add_view_key(connection, layout.views[view.name])
            for tables in layout.tables.values():
                _add_key(connection, tables.state, tables.key)
            for name, column in {(t, c) for v in group.views for t in v.tables for c in plan(v).indexed_columns(t)}:
                state = layout.tables[name].state
                connection.execute(sa.schema.CreateIndex(sa.Index(f"by_{column}__{name}"[:63], state.c[column])))
        with self.transaction() as connection:
            for table in layout.metadata.sorted_tables:
                connection.execute(sa.text(f"ANALYZE {connection.dialect.identifier_preparer.format_table(table)}"))

    def serve(self, group: ProjectionGroup, run: Run, layout: GenerationLayout, progress: Progress) -> None:
        """Point the stable view names to a generation that is built up to ``progress``, in one transaction.

        A query on the view holds it up; after a minute of tries it ends with ViewInUse.
        """
        for attempt in stamina.retry_context(on=ViewInUse, attempts=12, timeout=60.0, wait_initial=0.2, wait_max=2.0):
            with attempt:
                self._serve(group, run, layout, progress)

    def _serve(self, group: ProjectionGroup, run: Run, layout: GenerationLayout, progress: Progress) -> None:
        with self.transaction() as connection:
            connection.execute(sa.text("SET LOCAL lock_timeout = '5s'"))
            runs.set_progress(connection, run, progress)
            previous = [r.generation for r in connection.execute(_serving_rows(group.name))]
            for view in group.views:
                self._point(connection, view.name, layout.views[view.name])
            for generation in previous:
                runs.set_status(connection, Run(group.name, generation, ""), "retired")
            runs.set_status(connection, run, "serving")

    def _point(self, connection: sa.Connection, name: str, view: ViewLayout) -> None:
        """Replace the stable view; its columns may differ, so it is dropped and made again, with the grants it had."""
        stable = sa.Table(name, sa.MetaData(schema=self._serving_schema))
        preparer = connection.dialect.identifier_preparer
        columns = ", ".join(preparer.quote(c) for c in view.columns)
        target, source = preparer.format_table(stable), preparer.format_table(view.view)
        grants = connection.execute(_GRANTS, {"schema": self._serving_schema, "view": name}).all()
        connection.execute(sa.text(f"DROP VIEW IF EXISTS {target}"))
        connection.execute(sa.text(f"CREATE VIEW {target} AS SELECT {columns} FROM {source}"))  # noqa: S608
        for grantee, privilege in grants:
            role = "PUBLIC" if grantee == "PUBLIC" else preparer.quote(grantee)
            connection.execute(sa.text(f"GRANT {privilege} ON {target} TO {role}"))

    def generations(self) -> list[dict[str, Any]]:
        """Every generation of every group, with its status and progress."""
        columns = runs.RUNS.c
        query = sa.select(columns.group_name.label("group"), columns.generation, columns.status, columns.progress)
        self.prepare()
        with self.transaction() as connection:
            return [dict(row) for row in connection.execute(query.order_by("group", "generation")).mappings()]

    def discard_retired(self, group: str) -> list[int]:
        """Drop the generations that no longer serve, and return their numbers."""
        query = sa.select(runs.RUNS.c.generation).where(
            runs.RUNS.c.group_name == group, runs.RUNS.c.status == "retired"
        )
        with self.transaction() as connection:
            retired = list(connection.scalars(query))
            for generation in retired:
                self._drop(connection, Run(group, generation, ""))
        return retired

    def _drop(self, connection: sa.Connection, run: Run) -> None:
        schema = generation_schema(run.group, run.generation)
        connection.execute(sa.schema.DropSchema(schema, cascade=True, if_exists=True))
        runs.delete_run(connection, run)


def _serving_rows(group: str) -> sa.Select[tuple[int]]:
    return sa.select(runs.RUNS.c.generation).where(runs.RUNS.c.group_name == group, runs.RUNS.c.status == "serving")


def _add_key(connection: sa.Connection, table: sa.Table, key: tuple[str, ...]) -> None:
    preparer = connection.dialect.identifier_preparer
    columns = ", ".join(preparer.quote(c) for c in key)
    connection.execute(sa.text(f"ALTER TABLE {preparer.format_table(table)} ADD PRIMARY KEY ({columns})"))


def _add_view_key(connection: sa.Connection, view: ViewLayout) -> None:
    try:
        with connection.begin_nested():
            _add_key(connection, view.view, (view.key,))
    except sa.exc.IntegrityError as error:
        key = view.view.c[view.key]
        repeated = sa.select(key).group_by(key).having(sa.or_(sa.func.count() > 1, key.is_(None))).limit(1)
        raise key_not_unique(view.view.name, connection.scalar(repeated)) from error


_LOCK_NOT_AVAILABLE, _DEPENDENT_OBJECTS = "55P03", "2BP01"


@contextlib.contextmanager
def _reachable(url: sa.URL) -> Iterator[None]:
    """Type what the database reports, without the password."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        place, cause = url.render_as_string(hide_password=True), str(error.orig).splitlines()[0]
        state = getattr(error.orig, "sqlstate", None)
        if state == _LOCK_NOT_AVAILABLE:
            raise ViewInUse(cause, remedy="end the long query on the view, then rebuild again", place=place) from error
        if state == _DEPENDENT_OBJECTS:
            remedy = "drop what depends on the view, rebuild, and make it again"
            raise ViewInUse(cause, remedy=remedy, place=place) from error
        if isinstance(error, sa.exc.OperationalError):
            raise TableStoreUnavailable(
                f"the views' database failed: {cause}",
                remedy="check that it runs and that user and password are right; the run goes on where it stopped",
                place=place,
            ) from error
        raise
