"""The PostgreSQL table store: a schema a generation, advisory locks, COPY."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlencode

import sqlalchemy as sa

from eventstore.backends.sql.engines import engine_for
from eventstore.backends.sql.ways import POOLED
from eventstore.delivery.source import masked_message
from projections.errors import ProjectionError, TableStoreUnavailable, ViewInUse, unsupported_value
from projections.stores import dialects
from projections.stores.arrow import Target
from projections.stores.dialects import POSTGRES
from projections.stores.layout import GenerationLayout, Named, ViewLayout, generation_name
from projections.stores.loads import close_loads_of, create_loads_tables
from projections.stores.locks import already_active
from projections.stores.runs import Run
from projections.stores.sql import TableStore

_GRANTS = sa.text(
    "SELECT grantee, privilege_type FROM information_schema.role_table_grants"
    " WHERE table_schema = :schema AND table_name = :view AND grantee <> grantor"
)
# An advisory lock by one number shows as its two halves.
_HELD = sa.text(
    "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND classid::bigint = :high AND objid::bigint = :low"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_KIND = sa.text(
    "SELECT c.oid, relkind::text AS kind FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace"
    " WHERE nspname = :schema AND relname = :name"
)
_SHOWN = sa.text(
    "SELECT DISTINCT nspname FROM pg_rewrite AS r"
    " JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid"
    " JOIN pg_class AS c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid AND c.oid <> ev_class"
    " JOIN pg_namespace AS n ON n.oid = relnamespace WHERE ev_class = :oid"
)
_KINDS = {
    "v": "view",
    "r": "table",
    "p": "table",
    "f": "foreign table",
    "m": "materialized view",
    "S": "sequence",
    "i": "index",
}
_SIZE = sa.text(
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace"
    " WHERE nspname = :schema AND relkind IN ('r', 'm')"
)
_LOCK_NOT_AVAILABLE, _DEPENDENT_OBJECTS, _NO_RIGHT = "55P03", "2BP01", "42501"
_RUNS = (
    "check that it runs and exists (factfold cdc prepare creates it), its user and password; "
    "the run goes on where it stopped"
)
_POOLED = "write ?prepare_threshold=none into the URL of the views' database, or let the pooler pool sessions"


class PostgresTableStore(TableStore):
    """State and views of projection groups in one PostgreSQL database.

    ``url`` is SQLAlchemy's (``postgresql+psycopg://…``); ``serving_schema`` is where the stable view names live.
    """

    dialect = POSTGRES
    minus = staticmethod(sa.except_all)

    def __init__(self, url: str, *, serving_schema: str = "public") -> None:
        super().__init__(engine_for(url, pool_pre_ping=True, hide_parameters=True))
        self.serving_schema = serving_schema
        self._disconnect: Callable[[str], None] = _has_no_pool

    @property
    def uri(self) -> str:
        """Libpq's URI of the database, password included: for ADBC, never for print.

        All that SQLAlchemy's URL says is in it: several hosts, a socket's folder, TLS.
        """
        _, options = self._engine.dialect.create_connect_args(self._engine.url)
        # What is no text is psycopg's own, and so is the one setting that SQLAlchemy takes for text.
        libpq = {n: value for n, value in options.items() if isinstance(value, str | int) and n != "prepare_threshold"}
        return f"postgresql://?{urlencode(libpq, quote_via=quote)}"

    def target(self, table: sa.Table, run: Run | None = None) -> Target:
        """Where ADBC writes and reads a table of a generation."""
        # ADBC loads pandas, which takes longer than all else in a command that only asks.
        from projections.stores.copying import PostgresTarget, disconnect

        self._disconnect = disconnect
        return PostgresTarget(self.uri, str(table.schema), table.name, run)

    def prepare(self) -> None:
        """Create our own tables, of runs and of loads, where they are missing."""
        super().prepare()
        with self.transaction() as connection:
            create_loads_tables(connection)

    def close(self) -> None:
        """Close the connections of both pools."""
        self._disconnect(self.uri)
        super().close()

    @contextlib.contextmanager
    def exclusive(self, group: str, *, role: str) -> Iterator[None]:
        """Hold a role of a group for the length of the block; raises RunAlreadyActive."""
        with self._reachable(), self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            _lock(connection, group, role)
            try:
                yield
            finally:
                _unlock(connection, group, role)

    def is_held(self, group: str, *, role: str) -> bool:
        """Whether any process holds a role of a group, as the server's own list of locks says."""
        number = _lock_number(group, role) & 0xFFFF_FFFF_FFFF_FFFF
        with self.looking() as connection:
            return bool(connection.scalar(_HELD, {"high": number >> 32, "low": number & 0xFFFF_FFFF}))

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """A transaction whose every query sees the same moment."""
        with self.transaction() as connection:
            connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            yield connection

    def check_master(self, master: str) -> None:
        """Any: executors reach the database over the network."""

    def size(self, run: Run) -> int:
        """The bytes of the tables in the generation's schema."""
        with self.looking() as connection:
            return int(connection.scalar(_SIZE, {"schema": generation_name(run.group, run.generation)}) or 0)

    def _begin_staging(self, connection: sa.Connection) -> None:
        connection.execute(sa.text("SET LOCAL synchronous_commit = off"))
        dialects.find_by_index(connection)

    def _index_working_tables(self, connection: sa.Connection, layout: GenerationLayout) -> None:
        """None are needed; the keys and indexes that follow are built in memory."""
        connection.execute(sa.text("SET LOCAL maintenance_work_mem = '256MB'"))

    def _add_key(self, connection: sa.Connection, table: sa.Table, key: tuple[str, ...]) -> None:
        preparer = connection.dialect.identifier_preparer
        columns = ", ".join(preparer.quote(c) for c in key)
        connection.execute(sa.text(f"ALTER TABLE {preparer.format_table(table)} ADD PRIMARY KEY ({columns})"))

    def _named(self, connection: sa.Connection, name: str) -> Named | None:
        row = connection.execute(_KIND, {"schema": self.serving_schema, "name": name}).one_or_none()
        if row is None:
            return None
        shown = connection.scalars(_SHOWN, {"oid": row.oid}).all()
        return Named(_KINDS.get(row.kind, "type"), shown[0] if row.kind == "v" and len(shown) == 1 else None)

    def _point(self, connection: sa.Connection, name: str, view: ViewLayout) -> None:
        """Replace the stable view; its columns may differ, so it is dropped and made again, with the grants it had."""
        connection.execute(sa.text("SET LOCAL lock_timeout = '5s'"))
        stable = sa.Table(name, sa.MetaData(schema=self.serving_schema))
        preparer = connection.dialect.identifier_preparer
        columns = ", ".join(preparer.quote(c) for c in view.columns)
        target, source = preparer.format_table(stable), preparer.format_table(view.view)
        grants = connection.execute(_GRANTS, {"schema": self.serving_schema, "view": name}).all()
        connection.execute(sa.text(f"DROP VIEW IF EXISTS {target}"))
        connection.execute(sa.text(f"CREATE VIEW {target} AS SELECT {columns} FROM {source}"))  # noqa: S608
        for grantee, privilege in grants:
            role = "PUBLIC" if grantee == "PUBLIC" else preparer.quote(grantee)
            connection.execute(sa.text(f"GRANT {privilege} ON {target} TO {role}"))

    def _drop_tables(self, connection: sa.Connection, run: Run) -> None:
        schema = generation_name(run.group, run.generation)
        connection.execute(sa.schema.DropSchema(schema, cascade=True, if_exists=True))
        close_loads_of(connection, schema)

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            cause = masked_message(error).partition("\n")[0]
            state = getattr(error.orig, "sqlstate", None)
            if state == _LOCK_NOT_AVAILABLE:
                remedy = "end the long query on the view, then rebuild again"
                raise ViewInUse(cause, remedy=remedy, place=self.place) from error
            if state == _DEPENDENT_OBJECTS:
                remedy = "drop what depends on the view, rebuild, and make it again"
                raise ViewInUse(cause, remedy=remedy, place=self.place) from error
            if state == _NO_RIGHT:
                raise ProjectionError(
                    f"the role of the views may not do this: {cause}",
                    remedy="grant it CREATE on the database, and on the schema the views are shown in",
                    place=self.place,
                    code="right-missing",
                ) from error
            if isinstance(error, sa.exc.DataError):
                raise unsupported_value(
                    f"the views' database cannot hold a value: {cause}", place=self.place
                ) from error
            raise TableStoreUnavailable(
                f"the views' database failed: {cause}",
                remedy=_POOLED if state in POOLED else _RUNS,
                place=self.place,
            ) from error


def _lock(connection: sa.Connection, group: str, role: str) -> None:
    """Hold a role until ``_unlock`` or the end of the connection, or raise RunAlreadyActive.

    A session-level advisory lock: a killed runner's connection ends with it, so that nothing has to be cleaned up.
    """
    if not connection.scalar(sa.select(sa.func.pg_try_advisory_lock(_lock_number(group, role)))):
        raise already_active(group, role)


def _unlock(connection: sa.Connection, group: str, role: str) -> None:
    """Let the role go at once: the server notices a closed connection only some time later."""
    try:
        connection.execute(sa.select(sa.func.pg_advisory_unlock(_lock_number(group, role))))
    except sa.exc.DBAPIError:
        connection.invalidate()  # the session has ended, and with it the lock


def _lock_number(group: str, role: str) -> int:
    return int.from_bytes(hashlib.sha256(f"factfold/{group}/{role}".encode()).digest()[:8], "big", signed=True)


def _has_no_pool(uri: str) -> None:
    """No table was read or written in bulk."""
