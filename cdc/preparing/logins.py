"""The role that connectors log in as: its password, its rights, and what it reads."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from cdc.connectors.secrets import file_of, revealed, store_secret, stored_secret
from cdc.errors import SourceNotReady
from cdc.findings import errors
from cdc.identifiers import check_name, quoted
from cdc.preparing.steps import Step
from cdc.source.catalogue import publication_facts, role_facts, typed_errors
from cdc.source.grants import prepare_source, publication_statement, rights_statements, role_statement, unpublished
from cdc.source.signal_table import signal_statements, signal_table_of
from cdc.source.source_health import source_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine

    from cdc.connectors.postgres_connector import PostgresConnector

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
