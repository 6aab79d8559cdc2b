"""A step of a preparation: what it looks for, what it makes, and the SQL for those with more rights.

The role that connectors log in as: its password, its rights, and what it reads.

Login roles, databases and tables of a service. Roles and databases need the URL of an administrator.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import SecretStr

from cdc.connectors.secrets import file_of, revealed, store_secret, stored_secret
from cdc.errors import SourceNotReady
from cdc.findings import errors
from cdc.identifiers import check_name, quoted
from cdc.source.catalogue import role_facts, typed_errors
from cdc.source.grants import missing_statements, prepare_source, set_password
from cdc.source.source_health import source_findings
from eventstore.errors import FactfoldError, StoreNotPrepared
from eventstore.shown_urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import URL, Engine, MetaData

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


@dataclass(frozen=True)
class Step:
    """One thing that a service needs before it runs.

    ``look`` says what is missing, nothing if all is present, and ``make`` makes it. ``sql`` is the SQL that does so for
    a role with more rights. ``done`` is what was made, if that says more than what was missing.
    """

    name: str
    target: str
    look: Callable[[], str]
    make: Callable[[], object]
    sql: Callable[[], tuple[str, ...]] = tuple
    done: str = ""


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


def password_step(login: ConnectorLogin) -> Step:
    """The password of a connector's role, in the secrets file of the Connect worker."""
    if (place := login.file) is None:
        return Step("password", f"of {login.role}", look=str, make=tuple)

    def chosen() -> str | SecretStr:
        if login.given is not None:
            return login.given(login.role)
        if login.role_exists():
            raise SourceNotReady(
                f"role {login.role} exists, and the secrets file does not have its password",
                remedy="give its password (password=, --ask), or name the folder of the worker's secrets file "
                "(secrets_dir=, --secrets-dir)",
                place=str(place[0]),
            )
        return secrets.token_urlsafe(_BYTES)

    return Step(
        "password",
        f"of {login.role} in {place[0]}",
        look=lambda: "" if login.stored() is not None else f"the key {place[1]}",
        make=lambda: store_secret(*place, chosen()),
    )


def rights_step(login: ConnectorLogin, *, by: Engine) -> Step:
    """The role, its rights, the publication and the signal table of a connector."""

    def look() -> str:
        with typed_errors(by), by.connect() as connection:
            problems = errors(source_findings(connection, login.connector))
        return "; ".join(problem.result for problem in problems)

    def make() -> None:
        password = None if login.role_exists() else login.stored()
        if password is None and login.file is None and login.given is not None:
            password = SecretStr(revealed(login.given(login.role)))
        prepare_source(by, login.connector, password=password)

    def sql() -> tuple[str, ...]:
        with typed_errors(by), by.connect() as connection:
            needed, role = tuple(missing_statements(connection, login.connector)), role_facts(connection, login.role)
        if role is not None:
            return needed
        # What SQL cannot say without the password.
        where = "stands behind its reference" if login.file is None else f"{login.file[0]} has"
        return (*needed, f"-- in psql: \\password {quoted(login.role)} and the password that {where}")

    return Step("source", login.connector.name, look, make, sql, done="role, rights and publication")


_NO_ADMINISTRATOR = "give an administrator's URL (admin=, --admin-url), or have the SQL run by one"
_NO_LOGIN = "check user and password of the URL, or let an administrator create the role (admin=, --admin-url)"


def role_step(url: URL, *, admin: Engine) -> Step:
    """The role that a service logs in as, with the password of the service's URL."""
    role = check_name(url.username or "", "role")
    create = f"CREATE ROLE {quoted(role)} LOGIN"

    def look() -> str:
        with typed_errors(admin), admin.connect() as connection:
            return "" if role_facts(connection, role) else "a login with the password of its URL"

    def make() -> None:
        if not url.password:
            raise SourceNotReady(
                f"role {role} does not exist, and its URL has no password to create it with",
                remedy="put a password into the URL, or create the role",
                place=role,
            )
        with typed_errors(admin), admin.begin() as connection:
            connection.exec_driver_sql(create)
            set_password(connection, role, str(url.password))

    return Step("role", role, look, make, lambda: (create,))


def database_step(engine: Engine, *, admin: Engine | None) -> Step:
    """A database of the service, which belongs to the role of its URL."""
    name, owner = check_name(engine.url.database or engine.url.username or "", "database"), engine.url.username
    create = f"CREATE DATABASE {quoted(name)}" + (f" OWNER {quoted(owner)}" if owner else "")

    def look() -> str:
        if admin is None:
            return "" if _answers(engine, name) else "a new database"
        with typed_errors(admin), admin.connect() as connection:
            row = connection.exec_driver_sql("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).first()
        return "" if row else "a new database"

    def make() -> None:
        if admin is None:
            raise SourceNotReady(f"database {name!r} does not exist", remedy=_NO_ADMINISTRATOR, place=name)
        autocommit = admin.execution_options(isolation_level="AUTOCOMMIT")
        with typed_errors(admin), autocommit.connect() as connection:
            connection.exec_driver_sql(create)

    return Step("database", name, look, make, lambda: (create,))


def _answers(engine: Engine, name: str) -> bool:
    try:
        with typed_errors(engine), engine.connect():
            return True
    except SourceNotReady as error:
        if f'database "{name}" does not exist' in error.message:
            return False
        if "authentication failed" in error.message:  # said of a role that does not exist, too
            raise SourceNotReady(error.message, remedy=_NO_LOGIN, place=error.place) from error
        raise


def store_step(store: SqlEventStore) -> Step:
    """The tables of an event store. An older store is not migrated."""
    target = shown_url(store.engine.url)

    def look() -> str:
        version = store.version()
        if version.installed and not version.is_current:
            raise StoreNotPrepared(
                f"the event store is at version {version.installed}, and this release needs {version.newest}",
                remedy="run factfold store migrate, then repeat the command",
                place=target,
            )
        return "" if version.is_current else "the tables of the event store"

    return Step("store", target, look, store.create_tables, lambda: (store.migration_sql(),))


def tables_step(engine: Engine, tables: MetaData) -> Step:
    """The tables of the service's own models."""

    def look() -> str:
        names = [table.fullname for table in tables.sorted_tables]
        asked = "SELECT to_regclass(%s)"
        with typed_errors(engine), engine.connect() as connection:
            missing = [one for one in names if connection.exec_driver_sql(asked, (_quoted(one),)).scalar() is None]
        return ", ".join(missing)

    def make() -> None:
        with typed_errors(engine):
            tables.create_all(engine)

    return Step("tables", str(engine.url.database), look, make)


def categories_step(store: SqlEventStore, aggregates: Sequence[type[Aggregate]], *, partitions: int) -> Step:
    """The categories and the schemas of aggregates, which name the event topics."""

    def undeclared() -> list[str]:
        declared = {category.name for category in store.categories()}
        return [one.category for one in aggregates if one.category not in declared]

    def look() -> str:
        known = {schema.id for schema in store.schemas()}
        kinds = [kind.registered for aggregate in aggregates for kind in aggregate.event_types.values()]
        return ", ".join(dict.fromkeys([*undeclared(), *(kind.name for kind in kinds if kind.id not in known)]))

    def make() -> None:
        for category in undeclared():
            store.declare_category(category, partitions=partitions)
        store.register(*aggregates)

    return Step("aggregates", ", ".join(aggregate.category for aggregate in aggregates), look, make)


def _quoted(name: str) -> str:
    return ".".join(quoted(part) for part in name.split("."))
