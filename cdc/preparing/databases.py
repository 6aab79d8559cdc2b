"""Login roles, databases and tables of a service. Roles and databases need the URL of an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.errors import SourceNotReady
from cdc.identifiers import check_name, quoted
from cdc.preparing.steps import Step
from cdc.source.catalogue import role_facts, typed_errors
from cdc.source.grants import set_password
from eventstore.errors import StoreNotPrepared
from eventstore.shown_urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import URL, Engine, MetaData

    from eventstore import Aggregate, SqlEventStore

_NO_ADMINISTRATOR = "give an administrator's URL (admin=, --admin-url), or have the SQL run by one"
_NO_LOGIN = "check user and password of the URL, or let an administrator create the role (admin=, --admin-url)"


class LoginRole(Step):
    """The role that a service logs in as, with the password of the service's URL."""

    name = "role"

    def __init__(self, url: URL, *, admin: Engine) -> None:
        self.target = check_name(url.username or "", "role")
        self._url, self._admin = url, admin

    def look(self) -> str:
        """See `Step`."""
        with typed_errors(self._admin), self._admin.connect() as connection:
            return "" if role_facts(connection, self.target) else "a login with the password of its URL"

    def make(self) -> None:
        """See `Step`."""
        if not self._url.password:
            raise SourceNotReady(
                f"role {self.target} does not exist, and its URL has no password to create it with",
                remedy="put a password into the URL, or create the role",
                place=self.target,
            )
        with typed_errors(self._admin), self._admin.begin() as connection:
            connection.exec_driver_sql(self.sql()[0])
            set_password(connection, self.target, str(self._url.password))

    def sql(self) -> tuple[str, ...]:
        """See `Step`."""
        return (f"CREATE ROLE {quoted(self.target)} LOGIN",)


class Database(Step):
    """A database of the service, which belongs to the role of its URL."""

    name = "database"

    def __init__(self, engine: Engine, *, admin: Engine | None) -> None:
        self.target = check_name(engine.url.database or engine.url.username or "", "database")
        self._engine, self._admin = engine, admin

    def look(self) -> str:
        """See `Step`."""
        exists = self._answers() if self._admin is None else self._is_listed(self._admin)
        return "" if exists else "a new database"

    def make(self) -> None:
        """See `Step`."""
        if self._admin is None:
            raise SourceNotReady(
                f"database {self.target!r} does not exist", remedy=_NO_ADMINISTRATOR, place=self.target
            )
        autocommit = self._admin.execution_options(isolation_level="AUTOCOMMIT")
        with typed_errors(self._admin), autocommit.connect() as connection:
            connection.exec_driver_sql(self.sql()[0])

    def sql(self) -> tuple[str, ...]:
        """See `Step`."""
        owner = self._engine.url.username
        return (f"CREATE DATABASE {quoted(self.target)}" + (f" OWNER {quoted(owner)}" if owner else ""),)

    def _is_listed(self, admin: Engine) -> bool:
        with typed_errors(admin), admin.connect() as connection:
            row = connection.exec_driver_sql("SELECT 1 FROM pg_database WHERE datname = %s", (self.target,)).first()
        return row is not None

    def _answers(self) -> bool:
        try:
            with typed_errors(self._engine), self._engine.connect():
                return True
        except SourceNotReady as error:
            if f'database "{self.target}" does not exist' in error.message:
                return False
            if "authentication failed" in error.message:  # said of a role that does not exist, too
                raise SourceNotReady(error.message, remedy=_NO_LOGIN, place=error.place) from error
            raise


class StoreTables(Step):
    """The tables of an event store. An older store is not migrated."""

    name = "store"

    def __init__(self, store: SqlEventStore) -> None:
        self.target, self._store = shown_url(store.engine.url), store

    def look(self) -> str:
        """See `Step`."""
        version = self._store.version()
        if version.installed and not version.is_current:
            raise StoreNotPrepared(
                f"the event store is at version {version.installed}, and this release needs {version.newest}",
                remedy="run factfold store migrate, then repeat the command",
                place=self.target,
            )
        return "" if version.is_current else "the tables of the event store"

    def make(self) -> None:
        """See `Step`."""
        self._store.create_tables()

    def sql(self) -> tuple[str, ...]:
        """See `Step`."""
        return (self._store.migration_sql(),)


class OwnTables(Step):
    """The tables of the service's own models."""

    name = "tables"

    def __init__(self, engine: Engine, tables: MetaData) -> None:
        self.target, self._engine, self._tables = str(engine.url.database), engine, tables

    def look(self) -> str:
        """See `Step`."""
        with typed_errors(self._engine), self._engine.connect() as connection:
            missing = [
                table.fullname
                for table in self._tables.sorted_tables
                if connection.exec_driver_sql("SELECT to_regclass(%s)", (_quoted(table.fullname),)).scalar() is None
            ]
        return ", ".join(missing)

    def make(self) -> None:
        """See `Step`."""
        with typed_errors(self._engine):
            self._tables.create_all(self._engine)


class Categories(Step):
    """The categories and the schemas of aggregates, which name the event topics."""

    name = "aggregates"

    def __init__(self, store: SqlEventStore, aggregates: Sequence[type[Aggregate]], *, partitions: int) -> None:
        self.target = ", ".join(aggregate.category for aggregate in aggregates)
        self._store, self._aggregates, self._partitions = store, aggregates, partitions

    def look(self) -> str:
        """See `Step`."""
        known = {schema.id for schema in self._store.schemas()}
        kinds = [kind.registered for aggregate in self._aggregates for kind in aggregate.event_types.values()]
        missing = [*self._undeclared(), *(kind.name for kind in kinds if kind.id not in known)]
        return ", ".join(dict.fromkeys(missing))

    def make(self) -> None:
        """See `Step`."""
        for category in self._undeclared():
            self._store.declare_category(category, partitions=self._partitions)
        self._store.register(*self._aggregates)

    def _undeclared(self) -> list[str]:
        declared = {category.name for category in self._store.categories()}
        return [one.category for one in self._aggregates if one.category not in declared]


def _quoted(name: str) -> str:
    return ".".join(quoted(part) for part in name.split("."))
