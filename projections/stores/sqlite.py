"""The SQLite table store: everything in one file, for one machine.

SQLite restarts the write-ahead log only when a writer meets no reader of it. Where there always is a reader, it grows
for ever, and every read searches all of it (https://www.sqlite.org/wal.html, "Avoiding Excessively Large WAL Files"). A
writer that meets a long one waits for its readers, for a second at most. New readers are not held up meanwhile.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from eventstore.backends.sql.engines import engine_for
from eventstore.delivery.source import masked_message
from eventstore.file_locks import is_locked, locked
from projections.errors import ProjectionError, TableStoreUnavailable
from projections.stores.arrow import LOCK_SECONDS, SqliteTarget, unavailable
from projections.stores.dialects import SQLITE
from projections.stores.layout import GenerationLayout, Named, ViewLayout, generation_name
from projections.stores.locks import already_active, runner_of
from projections.stores.runs import Run
from projections.stores.sql import TableStore

# A look whether a role is held takes its lock for some microseconds: a process tries again before it gives up.
_ROLE_SECONDS: Final = 0.03

LONG: Final = 64 * 1024 * 1024  # bytes; the first batch of a rebuild writes as much
_PATIENCE: Final = 1_000  # milliseconds


class WriteAheadLog:
    """The log of one database file; ``long`` is from how many bytes on it is written back."""

    def __init__(self, database: str, *, long: int = LONG) -> None:
        self._file = Path(f"{database}-wal")
        self._long = long
        self._limit = long

    def keep_short(self, engine: sa.Engine) -> None:
        """Write it back and empty it if it is long; if a reader never ends, again when it is twice as long."""
        size = self._size()
        if size < self._limit:
            return
        self._limit = 2 * size
        # What was committed is committed: a disk that is full says so to the next transaction.
        with (
            suppress(sa.exc.DBAPIError),
            engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
        ):
            before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_PATIENCE}")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {before}")
        if self._size() < size:
            self._limit = self._long

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:  # not written yet
            return 0


_NEEDED = (3, 33, 0)  # UPDATE … FROM
# Rows of a table and of its index, and how many have one key; https://www.sqlite.org/fileformat2.html#stat1tab
_BROUGHT_BY_A_BATCH = sa.text(
    "INSERT INTO sqlite_stat1 (tbl, idx, stat) SELECT tbl_name, name, '100 1' FROM sqlite_master"
    " WHERE type = 'index' AND tbl_name = :name UNION ALL SELECT :name, NULL, '100'"
)
_NAMED = sa.text("SELECT type, sql FROM sqlite_master WHERE lower(name) = :name")
_SIZE = sa.text("SELECT sum(pgsize) FROM dbstat WHERE substr(name, 1, length(:prefix)) = :prefix")
_SHOWN = re.compile(r'FROM "?(factfold_\w+)\$')  # in the text of a view of ours


class SqliteTableStore(TableStore):
    """State and views of projection groups in one SQLite file, with an event store or alone.

    One file and not an attached one a generation: with a write-ahead log, a transaction over two files is not atomic,
    and views and progress have to be. Every transaction of ours takes the write lock at its beginning, so that it never
    has to be given up halfway, and is short; readers are never held up.
    """

    dialect = SQLITE
    minus = staticmethod(sa.except_)  # there is no EXCEPT ALL; a key that comes twice shows in the digest

    def __init__(self, path: str | Path) -> None:
        self.path = str(Path(path).absolute())
        super().__init__(_engine(self.path))
        self._log = WriteAheadLog(self.path)

    @property
    def place(self) -> str:
        """The file."""
        return self.path

    def target(self, table: sa.Table, run: Run | None = None) -> SqliteTarget:
        """Where rows of a table are written and read: a runner holds a file's lock, which ends with the process."""
        return SqliteTarget(self.path, table.name)

    def prepare(self) -> None:
        """Create our own table of runs where it is missing; readers and the writer pass each other from then on."""
        if sqlite3.sqlite_version_info < _NEEDED:
            raise TableStoreUnavailable(
                f"this Python has SQLite {sqlite3.sqlite_version}, views need {'.'.join(map(str, _NEEDED))}",
                remedy="use a Python built with a newer SQLite",
                place=self.path,
            )
        with self._reachable(), self._engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        super().prepare()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction that lasts, behind which the write-ahead log is kept short."""
        with super().transaction() as connection:
            yield connection
        self._log.keep_short(self._engine)

    def exclusive(self, group: str, *, role: str) -> contextlib.AbstractContextManager[None]:
        """Hold a role of a group, by a file next to the database; raises RunAlreadyActive."""
        return locked(self._lock(group, role), within=_ROLE_SECONDS, held=partial(already_active, group, role))

    def is_held(self, group: str, *, role: str) -> bool:
        """Whether any process holds a role of a group."""
        return is_locked(self._lock(group, role))

    def _lock(self, group: str, role: str) -> Path:
        return Path(f"{self.path}-{group}-{role}.lock")

    def snapshot(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """Any transaction: it holds the write lock."""
        return self.transaction()

    def check_master(self, master: str) -> None:
        """Only this machine's processes may open the file, and none twice for one task: masters as local[*]."""
        if not re.fullmatch(r"local(\[[\d*]+\])?", master):
            raise ProjectionError(
                f"views in SQLite cannot be updated by a Spark at {master}",
                remedy="use local[*], or keep the views in PostgreSQL",
                place=self.path,
                code="unsupported-master",
            )

    def size(self, run: Run) -> int | None:
        """The bytes of the pages of the generation's tables; None without SQLite's own table of pages."""
        with suppress(TableStoreUnavailable), self.looking() as connection:
            return int(connection.scalar(_SIZE, {"prefix": f"{generation_name(run.group, run.generation)}$"}) or 0)
        return None

    def _begin_staging(self, connection: sa.Connection) -> None:
        """No commit waits for the disk here."""

    def _add_key(self, connection: sa.Connection, table: sa.Table, key: tuple[str, ...]) -> None:
        """A unique index: SQLite adds no primary key to a table; a null is refused by ourselves."""
        columns = [table.c[c] for c in key]
        nulls = sa.select(sa.literal(1)).where(sa.or_(*(c.is_(None) for c in columns))).limit(1)
        if connection.scalar(nulls):
            raise sa.exc.IntegrityError("null key", None, ValueError(table.name))
        connection.execute(sa.schema.CreateIndex(sa.Index(f"{table.name}$key", *columns, unique=True)))

    def _index_working_tables(self, connection: sa.Connection, layout: GenerationLayout) -> None:
        """Keys of what a batch brings: SQLite looks rows up by index or reads the whole table for each."""
        for tables in layout.tables.values():
            _index(connection, tables.staged, *(tables.staged.c[c] for c in tables.row_key))
        for view in layout.views.values():
            _index(connection, view.result, *view.key.parts(view.result))
            for role in view.roles.values():
                _index(connection, role.affected, *role.reached_by.parts(role.affected))

    def analyze(self, layout: GenerationLayout) -> None:
        """Let SQLite's planner know what was loaded, and that a batch brings little.

        It keeps no figures of empty tables and takes them for large ones: each batch would read the whole state.
        """
        super().analyze(layout)
        with self.transaction() as connection:
            for table in layout.working_tables():
                connection.execute(_BROUGHT_BY_A_BATCH, {"name": table.name})
            connection.execute(sa.text("ANALYZE sqlite_schema"))

    def _named(self, connection: sa.Connection, name: str) -> Named | None:
        row = connection.execute(_NAMED, {"name": name}).one_or_none()
        if row is None:
            return None
        shown = _SHOWN.search(row.sql or "") if row.type == "view" else None
        return Named(row.type, shown.group(1) if shown else None)

    def _point(self, connection: sa.Connection, name: str, view: ViewLayout) -> None:
        preparer = connection.dialect.identifier_preparer
        stable, source = preparer.quote(name), preparer.format_table(view.view)
        columns = ", ".join(preparer.quote(c) for c in view.columns)
        connection.execute(sa.text(f"DROP VIEW IF EXISTS {stable}"))
        connection.execute(sa.text(f"CREATE VIEW {stable} AS SELECT {columns} FROM {source}"))  # noqa: S608

    def _drop_tables(self, connection: sa.Connection, run: Run) -> None:
        prefix = f"{generation_name(run.group, run.generation)}$"
        tables = connection.scalars(sa.text("SELECT name FROM sqlite_master WHERE type = 'table'")).all()
        for name in tables:
            if name.startswith(prefix):
                connection.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData())))
        self._lock(run.group, runner_of(run)).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DatabaseError as error:
            raise unavailable(masked_message(error), self.path) from error


def _index(connection: sa.Connection, table: sa.Table, *parts: sa.ColumnElement[Any]) -> None:
    connection.execute(sa.schema.CreateIndex(sa.Index(f"{table.name}$key", *parts)))


def _engine(path: str) -> sa.Engine:
    engine = engine_for(
        sa.URL.create("sqlite", database=path), connect_args={"timeout": LOCK_SECONDS}, hide_parameters=True
    )

    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, and not by the driver's guesses
        # A crash of the machine may take back the last commits, in their order: views never know more than events.
        connection.execute("PRAGMA synchronous = NORMAL")

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
