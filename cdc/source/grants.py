"""The least a connector needs in its PostgreSQL: a login that replicates and reads its tables, a publication.

Run by a superuser, or by the tables' owner where role and publication exist: only superusers make REPLICATION roles,
and what is there already is left alone. Statements go through the driver as they are, so the engine is
`postgresql+psycopg`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from cdc.changes.rules import MARK_PREFIX
from cdc.connectors.secrets import revealed
from cdc.errors import SourceNotReady
from cdc.findings import Finding, Severity, errors
from cdc.identifiers import quoted
from cdc.source.catalogue import publication_facts, role_facts, table_facts, typed_errors
from cdc.source.signal_table import ensure_signal_table, signal_rights, signal_statements, signal_table_of
from cdc.source.source_health import (
    of_life,
    preparation_findings,
    publication_options,
    rights_findings,
    source_findings,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from cdc.connect.status import SourceOffset
    from cdc.connectors.postgres_connector import PostgresConnector

_NO_READER: Final = 0
_SHOWN: Final = 3
_DENIED: Final = (
    "run it as the owner of the tables and of the publication; as a superuser, where the role is to be made or to get "
    "LOGIN, REPLICATION or a password"
)
# Amazon's servers let no one set the attribute REPLICATION: members of this role replicate.
_REPLICATES_WHERE_MANAGED: Final = "rds_replication"
_VERIFIER = re.compile(r"SCRAM-SHA-256\$[0-9]+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+")


def grant_statements(connector: PostgresConnector) -> tuple[str, ...]:
    """Return the SQL that creates role, rights and publication, without a password, for running by hand.

    Examples:
        >>> grant_statements(rows)[0]
        'CREATE ROLE "shop_cdc" LOGIN REPLICATION'
    """
    return (
        f"CREATE ROLE {quoted(connector.user)} LOGIN REPLICATION",
        *signal_statements(connector),
        *rights_statements(connector),
        publication_statement(connector),
    )


def grant_notes(connector: PostgresConnector) -> tuple[str, ...]:
    """Return notes for running `grant_statements` by hand, as SQL comments."""
    role, publication = quoted(connector.user), quoted(connector.publication)
    tables = ", ".join(table.quoted for table in connector.table_names)
    return (
        f"-- The role gets the password that stands behind the connector's reference; in psql: \\password {role}",
        "-- For a source that is new. Where the role exists, leave out CREATE ROLE; where the publication exists, in",
        f"-- place of CREATE PUBLICATION add what it lacks: ALTER PUBLICATION {publication} ADD TABLE {tables};",
    )


def prepare_source(engine: Engine, connector: PostgresConnector, *, password: str | SecretStr | None = None) -> None:
    """Create the role, rights and publication that the connector needs. Calling it again changes nothing.

    Existing objects stay: a role keeps its password unless one is given, and a publication keeps other readers' tables.
    The password is sent as a SCRAM verifier, and no server log contains it.

    Raises:
        SourceNotReady: A new role has no password, the login lacks a right, or wal_level is not logical. Or a captured
            table is missing, has no primary key or a replica identity without it, or the publication hides rows or
            columns of it. Nothing is created then, since the database would refuse updates of a published table without
            a key.

    Examples:
        >>> prepare_source(engine, rows, password="correct horse")
    """
    with typed_errors(engine, denied=_DENIED), engine.begin() as connection:
        ensure_signal_table(connection, connector)
        _refuse(connector, errors(preparation_findings(connection, connector)))
        if password is None:
            _require_role(connection, connector.user)
        _run(connection, _role_changes(connection, connector.user))
        if password is not None:
            set_password(connection, connector.user, password)
        _run(connection, rights_statements(connector))
        # PostgreSQL only warns a role that may not grant a right.
        _refuse(connector, errors(rights_findings(connection, connector)))
        _run(connection, _publication_changes(connection, connector))


def missing_statements(connection: Connection, connector: PostgresConnector) -> Iterator[str]:
    """Yield the SQL that a source still needs for a connector. A right that the role has is granted again."""
    yield from _role_changes(connection, connector.user)
    signals = signal_table_of(connector)
    if signals and _one(connection, "SELECT to_regclass(%s)", signals.quoted) is None:
        yield from signal_statements(connector)
    yield from rights_statements(connector)
    yield from _publication_changes(connection, connector)


def check_source(engine: Engine, connector: PostgresConnector) -> None:
    """Check that the source is as the connector needs it. Raises SourceNotReady, which names all that is missing.

    Examples:
        >>> check_source(engine, rows)
    """
    with typed_errors(engine), engine.connect() as connection:
        problems = errors(source_findings(connection, connector))
    _refuse(
        connector,
        problems,
        advice=". factfold cdc prepare makes what is missing: rights and publication as the tables' owner, the role as "
        "a superuser (--admin-url)",
    )


def check_life(engine: Engine, connector: str, offsets: Iterable[SourceOffset]) -> None:
    """Look whether a connector's offsets are of this server's log; SourceNotReady where it ends before them.

    What such a server has written since was never read, and its changes would lose to older ones.
    """
    read_to = max((offset.lsn for offset in offsets), default=0)
    with typed_errors(engine), engine.connect() as connection:
        finding = of_life(connection, connector, read_to)
    if finding.severity is Severity.ERROR:
        raise SourceNotReady(finding.result, remedy=finding.remedy, place=str(engine.url.database))


def drop_slot(engine: Engine, slot: str, *, timeout: float = 15.0) -> bool:
    """Drop a replication slot without a reader. Return False if there is none.

    A stopped task releases its slot a moment later: the call waits up to `timeout` seconds. Raises SourceNotReady if
    the slot is still being read.

    Examples:
        >>> delete_connector(client, rows.name, forget=True)
        True
        >>> drop_slot(engine, rows.slot)
        True
    """
    end = time.monotonic() + timeout
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with typed_errors(engine), autocommit.connect() as connection:
        while (reader := _slot_reader(connection, slot)) is not None:
            if reader == _NO_READER:
                _one(connection, "SELECT pg_drop_replication_slot(%s)", slot)
                return True
            if time.monotonic() > end:
                raise SourceNotReady(
                    f"slot {slot!r} is being read by process {reader}",
                    remedy="delete or stop the connector that reads it",
                    place=slot,
                )
            time.sleep(0.1)
    return False


def mark_source(engine: Engine) -> None:
    """Write a mark into the source's log: an empty transaction that every connector sees and no topic gets.

    After a restart, Debezium sends no heartbeats until the first transaction.

    Examples:
        >>> mark_source(engine)
    """
    with typed_errors(engine), engine.begin() as connection:
        _one(connection, "SELECT pg_logical_emit_message(true, %s, '')", MARK_PREFIX)


def _slot_reader(connection: Connection, slot: str) -> int | None:
    """Return the process that reads the slot, 0 if none does, None if there is no such slot."""
    asked = "SELECT coalesce(active_pid, %s) FROM pg_replication_slots WHERE slot_name = %s"
    reader: int | None = _one(connection, asked, _NO_READER, slot)
    return reader


def rights_statements(connector: PostgresConnector) -> Iterator[str]:
    """Yield the SQL of the role's rights: to connect, to read the tables, to write signals."""
    role = quoted(connector.user)
    yield f"GRANT CONNECT ON DATABASE {quoted(connector.database)} TO {role}"
    for schema in dict.fromkeys(table.schema for table in connector.table_names):
        yield f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {role}"
    for table in connector.table_names:
        yield f"GRANT SELECT ON TABLE {table.quoted} TO {role}"
    yield from signal_rights(connector)


def publication_statement(connector: PostgresConnector) -> str:
    """Return the SQL that makes a connector's publication."""
    tables = ", ".join(table.quoted for table in connector.table_names)
    name = quoted(connector.publication)
    return f"CREATE PUBLICATION {name} FOR TABLE {tables} WITH ({publication_options(connector)})"


def _require_role(connection: Connection, user: str) -> None:
    if role_facts(connection, user) is None:
        raise SourceNotReady(
            f"role {user} does not exist, and no password was given for it",
            remedy="pass password=…, the one that the connector's reference names",
            place=user,
        )


def _run(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


def _role_changes(connection: Connection, user: str) -> Iterator[str]:
    role = role_facts(connection, user)
    has = {"LOGIN": role is not None and role.can_login, "REPLICATION": role is not None and role.replicates}
    lacking = [word for word in has if not has[word]]
    asked = "SELECT 1 FROM pg_roles WHERE rolname = %s"
    if managed := "REPLICATION" in lacking and bool(_one(connection, asked, _REPLICATES_WHERE_MANAGED)):
        lacking.remove("REPLICATION")
    if lacking:
        yield f"{'ALTER' if role else 'CREATE'} ROLE {quoted(user)} {' '.join(lacking)}"
    if managed:
        yield f"GRANT {quoted(_REPLICATES_WHERE_MANAGED)} TO {quoted(user)}"


def set_password(connection: Connection, user: str, password: str | SecretStr) -> None:
    """Give a role another password, which travels as a SCRAM verifier; sessions that are open stay."""
    verifier = _scram_verifier(connection, user, password)
    connection.exec_driver_sql(f"ALTER ROLE {quoted(user)} PASSWORD '{verifier}'")


def _scram_verifier(connection: Connection, user: str, password: str | SecretStr) -> str:
    """Make what the server stores in place of the password; libpq does it here."""
    clear = revealed(password)
    driver: Any = connection.connection.driver_connection
    made = driver.pgconn.encrypt_password(clear.encode(), user.encode(), b"scram-sha-256")
    verifier: str = made.decode("ascii")
    if not _VERIFIER.fullmatch(verifier):
        raise SourceNotReady("libpq made no SCRAM verifier", remedy="use a libpq of PostgreSQL 10 or newer")
    return verifier


def _publication_changes(connection: Connection, connector: PostgresConnector) -> Iterator[str]:
    """Yield what the publication lacks. It may be another connector's too: nothing is taken from it."""
    publication = publication_facts(connection, connector.publication)
    if publication is None:
        yield publication_statement(connector)
        return
    alter = f"ALTER PUBLICATION {quoted(connector.publication)}"
    if not publication.operations.issuperset(connector.operations):
        operations = ", ".join(dict.fromkeys([*connector.operations, *sorted(publication.operations)]))
        yield f"{alter} SET (publish = '{operations}')"
    facts = [table_facts(connection, table, role=connector.user) for table in connector.table_names]
    if not publication.by_root and any(one is not None and one.kind == "p" for one in facts):
        yield f"{alter} SET (publish_via_partition_root = true)"
        publication = publication_facts(connection, connector.publication) or publication
    lacking = [table.quoted for table in connector.table_names if str(table) not in publication.tables]
    if lacking:
        yield f"{alter} ADD TABLE {', '.join(lacking)}"


def _one(connection: Connection, statement: str, *values: object) -> Any:
    row = connection.exec_driver_sql(statement, values).first()
    return None if row is None else row[0]


def _refuse(connector: PostgresConnector, problems: Sequence[Finding], *, advice: str = "") -> None:
    if not problems:
        return
    remedies = list(dict.fromkeys(problem.remedy for problem in problems))
    more = [f"{len(remedies) - _SHOWN} more that factfold cdc doctor shows"] if len(remedies) > _SHOWN else []
    raise SourceNotReady(
        f"the source of connector {connector.name!r} is not ready: {'; '.join(one.result for one in problems)}",
        remedy="; ".join([*remedies[:_SHOWN], *more]) + advice,
        place=f"{connector.host}:{connector.port}/{connector.database}",
    )
