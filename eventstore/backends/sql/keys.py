"""Data keys of subjects as rows, wrapped by a master key; and which streams a subject stands in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import URL, Connection, Engine, Row, func, select, update

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.engines import engine_for
from eventstore.backends.sql.models import Tables
from eventstore.backends.sql.values import rows_in
from eventstore.backends.sql.ways import upsert
from eventstore.closing import Closing
from eventstore.erasure import MasterKeys, new_data_key
from eventstore.errors import KeysMissing
from eventstore.identifiers import check_subject
from eventstore.personal.sealing import DataKey

_PAGE: Final = 500


class SqlKeys:
    """The table `subject_keys`; a destroyed key leaves its id and the moment."""

    def __init__(self, database: Database, master: MasterKeys | None) -> None:
        self._database = database
        self._table = database.tables.subject_keys
        self._streams = database.tables.subject_streams
        self._dialect = database.dialect
        self._master = master
        self._store: str | None = None
        self._read, self._write = database.statement, database.writing

    def within(self, connection: Connection) -> SqlKeys:
        """Return these keys within a caller's transaction, where one writer locks out all others."""
        return SqlKeys(self._database.within(connection), self._master)

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        """Return the key of each subject, a new one where it has none or its last was destroyed; KeysMissing."""
        checked = sorted(map(check_subject, subjects))
        with self._read() as connection:
            keys = self._live(connection, checked)
        if missing := [subject for subject in checked if subject not in keys]:
            with self._changing() as connection:
                self._add(connection, missing)
                # Another writer may have been faster: a subject has one key in any case.
                keys |= self._live(connection, missing)
        return keys

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        """Return keys by id, None for those destroyed, nothing for those that were never here; KeysMissing."""
        with self._read() as connection:
            return {
                row.key_id: None if row.wrapped is None else self._unwrapped(connection, row)
                for row in rows_in(connection, select(self._table), self._table.c.key_id, ids)
            }

    def known(self, ids: Collection[UUID]) -> Mapping[UUID, str]:
        """Return the subjects of those ids that are keys of this store, destroyed ones too; without a master key."""
        columns = self._table.c
        with self._read() as connection:
            rows = rows_in(connection, select(columns.key_id, columns.subject), columns.key_id, ids)
            return {key_id: subject for key_id, subject in rows}

    def erase(self, subject: str) -> int:
        """Destroy the keys of a subject for good; return how many there were. InvalidIdentifier, InvalidSeal."""
        destroyed = self.destroy(subject)
        self.scrub()
        return destroyed

    def destroy(self, subject: str) -> int:
        """Do as `erase`, and leave it to the caller to `scrub`."""
        check_subject(subject)
        columns = self._table.c
        number = select(func.coalesce(func.max(columns.erasure), 0) + 1).scalar_subquery()
        destroyed = {"wrapped": None, "master": None, "erased": datetime.now(UTC), "erasure": number}
        # A subject has one key at most.
        statement = update(self._table).where(columns.subject == subject, columns.wrapped.is_not(None))
        with self._changing() as connection:
            self._dialect.order_erasures(connection)
            # A row that was given another subject holds the key of somebody else. What nobody opens can be destroyed.
            with suppress(KeysMissing):
                self._live(connection, [subject])
            return connection.execute(statement.values(destroyed)).rowcount

    def scrub(self) -> list[str]:
        """Remove former rows of the keys from the database's files; return what keeps them."""
        return self._database.scrub([self._table])

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """Lend a connection for changes of keys."""
        with self._write() as connection:
            self._dialect.overwrite_deleted(connection)
            yield connection

    def was_here(self, subject: str) -> bool:
        """Say whether a subject has a key, or had one that was destroyed."""
        query = select(self._table.c.key_id).where(self._table.c.subject == subject).limit(1)
        with self._read() as connection:
            return connection.execute(query).first() is not None

    def erasures(self) -> int:
        """Return how many keys were ever destroyed."""
        with self._read() as connection:
            return connection.scalar(select(func.max(self._table.c.erasure))) or 0

    def destroyed(self, first: int, last: int) -> list[UUID]:
        """Return the keys of some erasures in their order, counted from 0, ``last`` exclusive."""
        columns = self._table.c
        query = select(columns.key_id).where(columns.erasure > first, columns.erasure <= last)
        with self._read() as connection:
            return list(connection.execute(query.order_by(columns.erasure)).scalars())

    def rotate(self) -> int:
        """Wrap every data key by the current master key; return how many were not. Safe to begin again."""
        done, columns, current = 0, self._table.c, self.master().current
        others = select(self._table).where(columns.wrapped.is_not(None), columns.master != current)
        while True:
            with self._changing() as connection:
                self._dialect.order_erasures(connection)
                rows = connection.execute(others.limit(_PAGE)).all()
                done += sum(self._rewrap(connection, row) for row in rows)
            if len(rows) < _PAGE:
                self.scrub()
                return done

    def _rewrap(self, connection: Connection, row: Row[Any]) -> int:
        """Wrap a key by the current master key where it is what was read: one destroyed since stays destroyed."""
        columns, master = self._table.c, self.master()
        unchanged = (columns.key_id == row.key_id, columns.wrapped == row.wrapped)
        key = self._unwrapped(connection, row)
        again = {"wrapped": master.wrap(key, row.subject, self._in(connection)), "master": master.current}
        return connection.execute(update(self._table).where(*unchanged).values(again)).rowcount

    def note(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Remember that subjects (first) stand in streams (second)."""
        values = [{"subject": subject, "stream": stream} for subject, stream in sorted(set(pairs))]
        if values:
            with self._write() as connection:
                connection.execute(upsert(connection, self._streams).on_conflict_do_nothing(), values)

    def streams(self, subject: str) -> list[str]:
        """Return the streams that a subject stands in, by name."""
        columns = self._streams.c
        query = select(columns.stream).where(columns.subject == subject).order_by(columns.stream)
        with self._read() as connection:
            return list(connection.execute(query).scalars())

    def master(self) -> MasterKeys:
        """Return the master keys; KeysMissing."""
        if self._master is not None:
            return self._master
        raise KeysMissing(
            "the store holds wrapped keys, and there is no master key to open them",
            remedy="give it: SqlEventStore(url, keys=MasterKeys.parse(…)), or set FACTFOLD_MASTER_KEYS",
        )

    def _live(self, connection: Connection, subjects: list[str]) -> dict[str, DataKey]:
        live = select(self._table).where(self._table.c.wrapped.is_not(None))
        rows = rows_in(connection, live, self._table.c.subject, subjects)
        return {row.subject: self._unwrapped(connection, row) for row in rows}

    def _add(self, connection: Connection, subjects: list[str]) -> None:
        master, store, rows = self.master(), self._in(connection), list[dict[str, Any]]()
        for subject in subjects:
            key = new_data_key(uuid4())
            wrapped = master.wrap(key, subject, store)
            rows.append({"key_id": key.id, "subject": subject, "wrapped": wrapped, "master": master.current})
        connection.execute(upsert(connection, self._table).on_conflict_do_nothing(), rows)

    def _unwrapped(self, connection: Connection, row: Any) -> DataKey:
        return self.master().unwrap(row.master, row.key_id, row.wrapped, row.subject, self._in(connection))

    def _in(self, connection: Connection) -> str:
        """Return the schema that the keys are in and bound to."""
        if self._store is None:
            self._store = self._dialect.schema_of(connection)
        return self._store


class SqlKeyStore(SqlKeys, Closing):
    """The keys of an event store, for services that read its topics and not the store itself.

    Its database role needs only SELECT on `subject_keys`.

    Args:
        database: The URL of the store's database, or an engine. The caller disposes of an engine.
        master: The master keys that wrapped the data keys.
        schema: The store's database schema (PostgreSQL).

    Examples:
        >>> with SqlKeyStore("postgresql+psycopg://shop@db/shop", MasterKeys.parse(text)) as keys:
        ...     run_subscription(review, stop=stop, engine=engine, keys=keys)
    """

    def __init__(self, database: str | URL | Engine, master: MasterKeys, *, schema: str | None = None) -> None:
        self._owns_engine = not isinstance(database, Engine)
        self._schema = schema
        self.engine = database if isinstance(database, Engine) else engine_for(database)
        super().__init__(Database(self.engine, Tables(schema)), master)

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the same database in another process, as Spark's executors do: password and master keys go with it."""
        return partial(SqlKeyStore, schema=self._schema), (self.engine.url, self._master)

    def close(self) -> None:
        """Close the connections of an engine of its own."""
        if self._owns_engine:
            self.engine.dispose()
