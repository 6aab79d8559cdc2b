"""The table of signals to a connector: made, brought up to date, granted, published, emptied.

Debezium reads its inserts as changes like any other, and writes two rows of its own into it for each chunk of an
incremental snapshot: so the role needs INSERT as well as SELECT, and the table stands in the publication. Its first
three columns are text, in this order: id, type, data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cdc.errors import InvalidConnector, SourceNotReady
from cdc.findings import Finding
from cdc.identifiers import TableName, quoted
from cdc.source.catalogue import typed_errors

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from cdc.connectors.postgres_connector import PostgresConnector

# Column → its type. The longest id is that of a chunk, a UUID with "-close" behind it: 42 characters. Debezium's own
# example gives the data 2,048 characters, which the names of some sixty tables fill.
COLUMNS: Final = {"id": "varchar(64)", "type": "varchar(64)", "data": "text"}
_TEXTS: Final = frozenset({"character varying", "text", "character"})
_TABLES: Final = frozenset({"r", "p"})


def signal_table_of(connector: PostgresConnector) -> TableName | None:
    """Return the signal table that a connector declares, if it does."""
    declared: str | None = getattr(connector, "signal_table", None)
    return TableName.parse(declared) if declared else None


def declared_signal_table(connector: PostgresConnector) -> TableName:
    """Return the signal table that a connector declares; InvalidConnector without one."""
    table = signal_table_of(connector)
    if table is None:
        raise not_declared(connector.name, "signal_table")
    return table


def signal_statements(connector: PostgresConnector) -> Iterator[str]:
    """Yield the SQL that makes the signal table, to be run by hand; nothing where none is declared."""
    if table := signal_table_of(connector):
        yield _create(table)


def signal_rights(connector: PostgresConnector) -> Iterator[str]:
    """Yield what the role needs beyond reading the signal table; nothing where none is declared."""
    if table := signal_table_of(connector):
        yield f"GRANT INSERT ON TABLE {table.quoted} TO {quoted(connector.user)}"


def prepare_signals(engine: Engine, connector: PostgresConnector) -> bool:
    """Create the declared signal table or migrate an older one, grant and publish it. Return False if all was done.

    For a source that runs already, as the tables' owner. For a new source, `prepare_source` does it.

    Raises:
        InvalidConnector: No signal table is declared.
        SourceNotReady: Another table has the name, or the role or the publication is missing.

    Examples:
        >>> prepare_signals(engine, rows)
        True
    """
    table = declared_signal_table(connector)
    with typed_errors(engine), engine.begin() as connection:
        changed = [ensure_signal_table(connection, connector), _publish(connection, connector, table)]
        if not _may_insert(connection, connector.user, table):
            changed.append(True)
            for statement in (_grant_select(connector, table), *signal_rights(connector)):
                connection.exec_driver_sql(statement)
    return any(changed)


def ensure_signal_table(connection: Connection, connector: PostgresConnector) -> bool:
    """Make or migrate the signal table, if one is declared; whether anything was done. SourceNotReady."""
    table = signal_table_of(connector)
    if table is None:
        return False
    columns = _columns(connection, table)
    if columns is None:
        connection.exec_driver_sql(_create(table))
        return True
    _require_signal_table(connection, table, columns)
    narrow = [name for name, (_, length, _) in columns.items() if name in COLUMNS and _is_narrow(name, length)]
    for name in narrow:
        connection.exec_driver_sql(f"ALTER TABLE {table.quoted} ALTER COLUMN {quoted(name)} TYPE {COLUMNS[name]}")
    return bool(narrow)


def signal_findings(connection: Connection, connector: PostgresConnector) -> Iterator[Finding]:
    """Look at the signal table and the role's rights to it; nothing where none is declared, or none is there."""
    table = signal_table_of(connector)
    columns = None if table is None else _columns(connection, table)
    if table is None or columns is None:
        return
    if problem := _misfit(connection, table, columns):
        remedy = "declare another name as signal_table, or drop that table"
        yield Finding.error("signal table", f"table {table} is no signal table: {problem}", remedy)
    if not _may_insert(connection, connector.user, table):
        message = f"role {connector.user} may not INSERT into {table}, as incremental snapshots do"
        yield Finding.error("signal table", message, f"{next(signal_rights(connector))};")


def clear_signals(engine: Engine, connector: PostgresConnector) -> int:
    """Delete the rows of the signal table, and return how many. Each delete is a change event.

    Don't call it while a snapshot runs: the marks of the current chunk would be lost, and have no effect on it.

    Examples:
        >>> clear_signals(engine, rows)
    """
    table = declared_signal_table(connector)
    with typed_errors(engine), engine.begin() as connection:
        return connection.exec_driver_sql(f"DELETE FROM {table.quoted}").rowcount  # noqa: S608 - quoted by TableName


def not_declared(connector: str, field: str) -> InvalidConnector:
    """Build the error for a connector that lacks what signals need."""
    return InvalidConnector(
        f"connector {connector!r} declares no {field}",
        remedy=f"declare it (PostgresSource({field}=…)), prepare the source again and apply",
        place=field,
    )


def _create(table: TableName) -> str:
    columns = ", ".join(f"{quoted(name)} {kind} NOT NULL" for name, kind in COLUMNS.items())
    return f"CREATE TABLE {table.quoted} ({columns}, PRIMARY KEY ({quoted('id')}))"


def _grant_select(connector: PostgresConnector, table: TableName) -> str:
    return f"GRANT SELECT ON TABLE {table.quoted} TO {quoted(connector.user)}"


def _publish(connection: Connection, connector: PostgresConnector, table: TableName) -> bool:
    published = connection.exec_driver_sql(
        "SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s",
        (connector.publication, table.schema, table.table),
    ).first()
    if published is None:
        name = quoted(connector.publication)
        connection.exec_driver_sql(f"ALTER PUBLICATION {name} ADD TABLE {table.quoted}")
    return published is None


def _may_insert(connection: Connection, role: str, table: TableName) -> bool:
    known = connection.exec_driver_sql("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).first()
    if known is None:
        return False
    asked = "SELECT has_table_privilege(%s, to_regclass(%s)::oid, 'INSERT')"
    return bool(connection.exec_driver_sql(asked, (role, table.quoted)).scalar())


# Name → type, length (None for text), whether a row may leave it out.
Columns = dict[str, tuple[str, int | None, bool]]


def _columns(connection: Connection, table: TableName) -> Columns | None:
    """The columns in their order; None where there is no table of that name."""
    rows = connection.exec_driver_sql(
        "SELECT column_name, data_type, character_maximum_length, is_nullable = 'YES' OR column_default IS NOT NULL"
        " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (table.schema, table.table),
    )
    return {name: (kind, length, optional) for name, kind, length, optional in rows} or None


def _require_signal_table(connection: Connection, table: TableName, columns: Columns) -> None:
    if problem := _misfit(connection, table, columns):
        raise SourceNotReady(
            f"table {table} exists and is no signal table: {problem}",
            remedy="declare another name as signal_table, or drop that table",
            place=str(table),
        )


def _misfit(connection: Connection, table: TableName, columns: Columns) -> str | None:
    kind = connection.exec_driver_sql(
        "SELECT relkind::text FROM pg_class WHERE oid = to_regclass(%s)", (table.quoted,)
    ).scalar()
    if kind not in _TABLES:
        return "it is no table"
    if list(columns)[: len(COLUMNS)] != list(COLUMNS):
        return f"its columns are {', '.join(columns)}, and not {', '.join(COLUMNS)}"
    for name, (column_type, _, optional) in columns.items():
        if name in COLUMNS and column_type not in _TEXTS:
            return f"column {name} is {column_type}, and not text"
        if name not in COLUMNS and not optional:
            return f"column {name} must have a value, and signals have none"
    return None


def _is_narrow(name: str, length: int | None) -> bool:
    return length is not None and (name == "data" or length < 64)
