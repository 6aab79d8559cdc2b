"""The least a connector needs in its PostgreSQL: a login that replicates and reads its tables, a publication.

Run by a superuser, or by the tables' owner where the role exists: only superusers make REPLICATION roles.
Statements go through the driver as they are, so the engine is `postgresql+psycopg`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from cdc.catalogue import publication_facts, typed_errors
from cdc.errors import SourceNotReady
from cdc.findings import Finding, Severity, errors
from cdc.identifiers import quoted
from cdc.rules import MARK_PREFIX
from cdc.secrets import revealed
from cdc.signal_table import ensure_signal_table, signal_rights, signal_statements
from cdc.source_health import PUBLISHED, of_life, preparation_findings, publication_options, source_findings

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from cdc.connectors.postgres import PostgresConnector
    from cdc.status import SourceOffset

_NOBODY: Final = 0
_SHOWN: Final = 3
_VERIFIER = re.compile(r"SCRAM-SHA-256\$[0-9]+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+")


def grant_statements(connector: PostgresConnector) -> tuple[str, ...]:
    """Return the SQL of role, rights and publication, without a password, for those who run it by hand."""
    return (
        *_role(connector.user),
        *signal_statements(connector),
        *_rights(connector),
        _create_publication(connector),
    )


def prepare_source(engine: Engine, connector: PostgresConnector, *, password: str | SecretStr) -> None:
    """Make role, rights and publication as the connector needs them; again and again with the same result.

    The password travels as a SCRAM verifier, so it stands in no server log. Errors: SourceNotReady where the
    server's wal_level is not logical, or a captured table does not exist, has no primary key or a replica identity
    without it; nothing is made then: once such a table is published, the database refuses its updates.
    """
    with typed_errors(engine), engine.begin() as connection:
        ensure_signal_table(connection, connector)
        if problems := errors(preparation_findings(connection, connector)):
            raise _not_ready(connector, problems)
        _ensure_role(connection, connector.user, password)
        for statement in _rights(connector):
            connection.exec_driver_sql(statement)
        _ensure_publication(connection, connector)


def check_source(engine: Engine, connector: PostgresConnector) -> None:
    """Look whether the source is as the connector needs it; SourceNotReady names all that is missing."""
    with typed_errors(engine), engine.connect() as connection:
        problems = errors(source_findings(connection, connector))
    if problems:
        raise _not_ready(connector, problems)


def check_life(engine: Engine, connector: str, offsets: Iterable[SourceOffset]) -> None:
    """Look whether a connector's offsets are of this server's log; SourceNotReady where it ends before them.

    What such a server has written since was never read, and its changes would lose to older ones.
    """
    read_to = max((offset.lsn for offset in offsets), default=0)
    with typed_errors(engine), engine.connect() as connection:
        finding = of_life(connection, connector, read_to)
    if finding.severity is Severity.ERROR:
        raise SourceNotReady(finding.found, remedy=finding.remedy, place=str(engine.url.database))


def drop_slot(engine: Engine, slot: str, *, timeout: float = 15.0) -> bool:
    """Drop a replication slot that nobody reads any more; False where there is none.

    A task that was just stopped lets its slot go a moment later: waits up to `timeout` seconds.
    SourceNotReady where it is still being read.
    """
    end = time.monotonic() + timeout
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with typed_errors(engine), autocommit.connect() as connection:
        while (reader := _slot_reader(connection, slot)) is not None:
            if reader == _NOBODY:
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

    After a restart Debezium looks for its place until a transaction goes by; heartbeats are none, and pause.
    """
    with typed_errors(engine), engine.begin() as connection:
        _one(connection, "SELECT pg_logical_emit_message(true, %s, '')", MARK_PREFIX)


def _slot_reader(connection: Connection, slot: str) -> int | None:
    """Return the process that reads the slot, 0 for nobody, None where there is no such slot."""
    asked = "SELECT coalesce(active_pid, %s) FROM pg_replication_slots WHERE slot_name = %s"
    reader: int | None = _one(connection, asked, _NOBODY, slot)
    return reader


def _role(user: str) -> Iterator[str]:
    yield f"CREATE ROLE {quoted(user)} LOGIN REPLICATION"


def _rights(connector: PostgresConnector) -> Iterator[str]:
    role = quoted(connector.user)
    yield f"GRANT CONNECT ON DATABASE {quoted(connector.database)} TO {role}"
    for schema in dict.fromkeys(table.schema for table in connector.table_names):
        yield f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {role}"
    for table in connector.table_names:
        yield f"GRANT SELECT ON TABLE {table.quoted} TO {role}"
    yield from signal_rights(connector)


def _create_publication(connector: PostgresConnector) -> str:
    tables = ", ".join(table.quoted for table in connector.table_names)
    name = quoted(connector.publication)
    return f"CREATE PUBLICATION {name} FOR TABLE {tables} WITH ({publication_options()})"


def _ensure_role(connection: Connection, user: str, password: str | SecretStr) -> None:
    if _one(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", user) is None:
        for statement in _role(user):
            connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"ALTER ROLE {quoted(user)} LOGIN REPLICATION")
    set_password(connection, user, password)


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


def _ensure_publication(connection: Connection, connector: PostgresConnector) -> None:
    found, name = publication_facts(connection, connector.publication), quoted(connector.publication)
    if found is None:
        connection.exec_driver_sql(_create_publication(connector))
        return
    if found.operations != set(PUBLISHED) or not found.by_root:
        connection.exec_driver_sql(f"ALTER PUBLICATION {name} SET ({publication_options()})")
    if found.tables != {str(table) for table in connector.table_names}:
        tables = ", ".join(table.quoted for table in connector.table_names)
        connection.exec_driver_sql(f"ALTER PUBLICATION {name} SET TABLE {tables}")


def _one(connection: Connection, statement: str, *values: object) -> Any:
    row = connection.exec_driver_sql(statement, values).first()
    return None if row is None else row[0]


def _not_ready(connector: PostgresConnector, problems: Sequence[Finding]) -> SourceNotReady:
    remedies = list(dict.fromkeys(problem.remedy for problem in problems))
    more = [f"{len(remedies) - _SHOWN} more that factfold cdc doctor shows"] if len(remedies) > _SHOWN else []
    return SourceNotReady(
        f"the source of connector {connector.name!r} is not ready: {'; '.join(one.found for one in problems)}",
        remedy=f"{'; '.join([*remedies[:_SHOWN], *more])}. Run by the tables' owner, cdc.prepare_source(engine, "
        "connector, password=…) makes role, rights and publication",
        place=f"{connector.host}:{connector.port}/{connector.database}",
    )
