"""A step of a preparation: what it looks for, what it makes, and the SQL for those with more rights.

The role that connectors log in as: its password, its rights, and what it reads.

Login roles, databases and tables of a service. Roles and databases need the URL of an administrator.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import SecretStr

from cdc.connectors.secrets import file_of, revealed, store_secret, stored_secret
from cdc.errors import SourceNotReady
from cdc.findings import errors
from cdc.identifiers import check_name, quoted
from cdc.source.catalogue import publication_facts, role_facts, typed_errors
from cdc.source.grants import (
    prepare_source,
    publication_statement,
    rights_statements,
    role_statement,
    set_password,
    unpublished,
)
from cdc.source.signal_table import signal_statements, signal_table_of
from cdc.source.source_health import source_findings
from eventstore.errors import FactfoldError, StoreNotPrepared
from eventstore.shown_urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import URL, Connection, Engine, MetaData

    from cdc.connectors.postgres_connector import PostgresConnector
    from eventstore import Aggregate, SqlEventStore

Outcome = Literal["present", "made", "missing", "unknown", "failed"]


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """What a step of `prepare_service` did, or would do.

    Args:
        step: What the step prepares, such as `database` or `connector`.
        target: The name of the database, role, connector or file.
        outcome: `present` if nothing was to do, `made`, or `failed`. A dry run says `missing` for what it would make,
            and `unknown` for what it cannot see before an earlier step is done.
        detail: What is missing or what was made.
        sql: SQL that does the step, for a role with more rights. It holds no password.
        error: The error of a step that failed.

    Examples:
        >>> steps = prepare_service(service, dry_run=True)
        >>> [(step.step, step.target) for step in steps if step.outcome == "missing"]
        [('connector', 'shop_tables')]
    """

    step: str
    target: str
    outcome: Outcome
    detail: str = ""
    sql: tuple[str, ...] = ()
    error: FactfoldError | None = None


class Step(ABC):
    """One thing that a service needs before it runs."""

    name: str
    target: str
    done: str = ""
    """What was made, if that says more than what was missing."""

    @abstractmethod
    def look(self) -> str:
        """Say what is missing, and nothing if all is present."""

    @abstractmethod
    def make(self) -> None:
        """Make what is missing."""

    def sql(self) -> tuple[str, ...]:
        """The SQL that makes what is missing, for a role with more rights."""
        return ()


def perform(step: Step) -> PreparedStep:
    """Make what is missing. An error becomes the outcome."""
    try:
        missing = step.look()
    except FactfoldError as error:
        return PreparedStep(step.name, step.target, "failed", error=error)
    if not missing:
        return PreparedStep(step.name, step.target, "present")
    try:
        step.make()
    except FactfoldError as error:
        return PreparedStep(step.name, step.target, "failed", missing, _sql(step), error)
    return PreparedStep(step.name, step.target, "made", step.done or missing)


def foresee(step: Step, earlier: Iterable[PreparedStep]) -> PreparedStep:
    """Say what `perform` would do. Nothing is changed."""
    try:
        missing = step.look()
    except FactfoldError as error:
        if any(one.outcome == "missing" for one in earlier):
            return PreparedStep(step.name, step.target, "unknown", "seen after the steps before it")
        return PreparedStep(step.name, step.target, "failed", error.message, error=error)
    outcome: Outcome = "missing" if missing else "present"
    return PreparedStep(step.name, step.target, outcome, missing, _sql(step) if missing else ())


def run_steps(
    steps: Iterable[Step], *, on_step: Callable[[PreparedStep], object], dry_run: bool
) -> tuple[PreparedStep, ...]:
    """Perform steps in their order up to the first that fails, whose error is raised. A dry run looks at all."""
    done: list[PreparedStep] = []
    for step in steps:
        result = foresee(step, done) if dry_run else perform(step)
        done.append(result)
        on_step(result)
        if result.error is not None and not dry_run:
            raise result.error
    return tuple(done)


def _sql(step: Step) -> tuple[str, ...]:
    try:
        return step.sql()
    except FactfoldError:  # the database that would say what it lacks does not answer
        return ()


_BYTES: Final = 32


@dataclass(frozen=True)
class ConnectorLogin:
    """The login of a connector: its role, and the file of its password as this machine sees it.

    ``given`` asks for the password of a role; without it, the password of a new role is generated.
    """

    connector: PostgresConnector
    engine: Engine
    secrets_dir: Path | None = None
    given: Callable[[str], str | SecretStr] | None = None

    @property
    def role(self) -> str:
        """The role's name, which the declaration has to say."""
        return check_name(self.connector.user, "user", place=self.connector.name)

    @property
    def file(self) -> tuple[Path, str] | None:
        """The file of the password and its key there; None if another provider has it."""
        location = file_of(revealed(self.connector.password))
        if location is None or self.secrets_dir is None:
            return location
        return self.secrets_dir / location[0].name, location[1]

    def stored(self) -> SecretStr | None:
        """The password in the file."""
        return None if self.file is None else stored_secret(*self.file)

    def role_exists(self) -> bool:
        """Whether the database has the role."""
        with typed_errors(self.engine), self.engine.connect() as connection:
            return role_facts(connection, self.role) is not None


class Password(Step):
    """The password of a connector's role, in the secrets file of the Connect worker."""

    name = "password"

    def __init__(self, login: ConnectorLogin) -> None:
        self.target = f"of {login.role}" if login.file is None else f"of {login.role} in {login.file[0]}"
        self._login = login

    def look(self) -> str:
        """See `Step`."""
        if self._login.file is None or self._login.stored() is not None:
            return ""
        return "the key " + self._login.file[1]

    def make(self) -> None:
        """See `Step`."""
        if self._login.file is None:
            return
        store_secret(*self._login.file, self._chosen())

    def _chosen(self) -> str | SecretStr:
        if self._login.given is not None:
            return self._login.given(self._login.role)
        if self._login.role_exists():
            raise SourceNotReady(
                f"role {self._login.role} exists, and the secrets file does not have its password",
                remedy="give its password (password=, --ask), or name the folder of the worker's secrets file "
                "(secrets_dir=, --secrets-dir)",
                place=str(self._login.file[0]) if self._login.file else None,
            )
        return secrets.token_urlsafe(_BYTES)


class Rights(Step):
    """The role, its rights, the publication and the signal table of a connector."""

    name = "source"
    done = "role, rights and publication"

    def __init__(self, login: ConnectorLogin, *, by: Engine) -> None:
        self.target, self._login, self._by = login.connector.name, login, by

    def look(self) -> str:
        """See `Step`."""
        with typed_errors(self._by), self._by.connect() as connection:
            problems = errors(source_findings(connection, self._login.connector))
        return "; ".join(problem.result for problem in problems)

    def make(self) -> None:
        """See `Step`."""
        password = None if self._login.role_exists() else self._login.stored()
        if password is None and self._login.file is None and self._login.given is not None:
            password = SecretStr(revealed(self._login.given(self._login.role)))
        prepare_source(self._by, self._login.connector, password=password)

    def sql(self) -> tuple[str, ...]:
        """See `Step`."""
        with typed_errors(self._by), self._by.connect() as connection:
            needed = tuple(missing_statements(connection, self._login.connector))
        role = role_statement(self._login.role)
        return (*needed, self._by_hand()) if role in needed else needed

    def _by_hand(self) -> str:
        """What SQL cannot say without the password."""
        role, place = quoted(self._login.role), self._login.file
        where = "stands behind its reference" if place is None else f"{place[0]} has"
        return f"-- in psql: \\password {role} and the password that {where}"


def missing_statements(connection: Connection, connector: PostgresConnector) -> Iterator[str]:
    """Yield the SQL that a source still needs for a connector. A right that the role has is granted again."""
    role, publication = role_facts(connection, connector.user), publication_facts(connection, connector.publication)
    if role is None:
        yield role_statement(connector.user)
    elif not (role.can_login and role.replicates):
        yield f"ALTER ROLE {quoted(connector.user)} LOGIN REPLICATION"
    signals = signal_table_of(connector)
    if signals and connection.exec_driver_sql("SELECT to_regclass(%s)", (signals.quoted,)).scalar() is None:
        yield from signal_statements(connector)
    yield from rights_statements(connector)
    if publication is None:
        yield publication_statement(connector)
    elif lacking := unpublished(publication, connector):
        yield f"ALTER PUBLICATION {quoted(connector.publication)} ADD TABLE {lacking}"


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
