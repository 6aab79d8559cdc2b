"""Login roles and databases of a service. Both need the URL of an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.errors import SourceNotReady
from cdc.identifiers import check_name, quoted
from cdc.preparing.steps import Step
from cdc.source.catalogue import role_facts, typed_errors
from cdc.source.grants import set_password

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

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
