"""What a PostgreSQL source says of itself: server, role, tables, publication, slot; read in a few queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cdc.connect.failures import remedy_for, short_message
from cdc.connectors.postgres_connector import PostgresConnector
from cdc.errors import SourceNotReady

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from cdc.identifiers import TableName

# Types whose columns Debezium 3.7 leaves out of every record without a word, seen on a live server; so it does with
# composite types, multiranges, and arrays of domains.
_LEFT_OUT: Final = (
    "aclitem", "cid", "jsonpath", "pg_lsn", "pg_node_tree", "pg_snapshot", "refcursor", "regclass", "regcollation",
    "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc", "regprocedure", "regrole",
    "regtype", "tid", "tsquery", "txid_snapshot", "xid", "xid8",
)  # fmt: skip
T = TypeVar("T")
_INSUFFICIENT_PRIVILEGE: Final = "42501"
# These have a form, and arrays of them have none.
_ITEMS_LEFT_OUT: Final = ("interval", "money", "name", "point", "varbit", "xml")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Settings of the server; `version` as 180001 for 18.1, sizes in bytes, `slot_cap` None for no limit."""

    database: str
    version: int
    standby: bool
    wal_level: str
    slots: int
    max_slots: int
    senders: int
    max_senders: int
    slot_cap: int | None


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """A login, and what it may in this database."""

    can_login: bool
    replicates: bool
    expired: bool
    connects: bool


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table; names in `truncated_by` are quoted, `readable` and `schema_usable` None where the role does not exist.

    ``identity`` is PostgreSQL's letter: d(efault), n(othing), f(ull), i(ndex). ``identity_columns`` are the columns of
    the index that is the identity. ``defaulted`` are nullable columns that have a DEFAULT other than NULL.
    ``deferrable_key`` is the name of a primary key that may be checked later than each row is written.
    """

    kind: str
    logged: bool
    identity: str
    key: tuple[str, ...]
    identity_columns: tuple[str, ...]
    schema_usable: bool | None
    readable: bool | None
    row_security: bool
    truncated_by: tuple[str, ...]
    generated: tuple[str, ...]
    stored_generated: tuple[str, ...]
    formless: tuple[str, ...]
    defaulted: tuple[str, ...] = ()
    deferrable_key: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column; ``written`` is its type as PostgreSQL writes it, ``type`` the name of what its domains stand for.

    Of an array, ``type`` and ``modifier`` are those of its items and ``dimensions`` as many as are declared. PostgreSQL
    does not hold values to them. ``default`` is the expression of its DEFAULT, as PostgreSQL writes it.
    """

    name: str
    written: str
    type: str
    is_array: bool = False
    dimensions: int = 0
    modifier: int = -1
    default: str | None = None

    @property
    def quoted(self) -> str:
        """The name as SQL. PostgreSQL takes names that a connector's settings do not."""
        doubled = self.name.replace('"', '""')
        return f'"{doubled}"'


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """A publication: kinds of changes, and the tables it covers, whichever way.

    ``filtered`` are those of which it hides rows or columns, ``partitions`` those that are part of another table;
    ``enumerated`` is whether the tables are named one by one, and not as all there are, or all of a schema.
    """

    operations: frozenset[str]
    by_root: bool
    with_generated: bool
    all_tables: bool
    enumerated: bool
    tables: frozenset[str]
    filtered: frozenset[str]
    partitions: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """A replication slot. ``lag_bytes``: log its reader has not confirmed; ``retained_bytes``: log kept for it.

    ``wal_status`` is reserved, extended, unreserved (about to be lost) or lost; ``safe_bytes`` how much more may be
    written before it is in danger, None without a limit. Sizes are None for a slot that has lost its place.
    """

    name: str
    plugin: str | None
    database: str | None
    active: bool
    wal_status: str | None
    lag_bytes: int | None
    retained_bytes: int | None
    safe_bytes: int | None


def server_facts(connection: Connection) -> ServerFacts:
    """Read the settings that capture depends on."""
    row = connection.exec_driver_sql(
        "SELECT current_database(), current_setting('server_version_num')::int, pg_is_in_recovery(),"
        " current_setting('wal_level'),"
        " (SELECT count(*) FROM pg_replication_slots), current_setting('max_replication_slots')::int,"
        " (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders')::int,"
        # In MB; servers before 13 have none.
        " (SELECT nullif(setting::bigint, -1) * 1048576 FROM pg_settings WHERE name = 'max_slot_wal_keep_size')"
    ).one()
    return ServerFacts(*row)


def role_facts(connection: Connection, role: str) -> RoleFacts | None:
    """Read a role; None where there is none."""
    return _found(
        RoleFacts,
        connection,
        "SELECT rolcanlogin, rolreplication OR rolsuper"
        # Managed servers (Amazon's) keep the attribute to themselves, and let members of this role replicate.
        " OR EXISTS (SELECT FROM pg_roles m WHERE rolname = 'rds_replication' AND pg_has_role(r.oid, m.oid, 'MEMBER')),"
        " coalesce(rolvaliduntil <= now(), false),"
        " has_database_privilege(oid, current_database(), 'CONNECT')"
        " FROM pg_roles r WHERE rolname = %s",
        role,
    )


def _found(kind: Callable[..., T], connection: Connection, query: str, *values: object) -> T | None:
    """Make facts of the first row of a query; None without one."""
    row = connection.exec_driver_sql(query, values).first()
    return None if row is None else kind(*row)


_KEY_COLUMNS: Final = """ARRAY(
    SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = c.oid AND {condition} ORDER BY a.attnum)"""
# Nothing but the two conditions is put into it.
_TABLE: Final = f"""
SELECT c.relkind, c.relpersistence <> 'u', c.relreplident,
  {_KEY_COLUMNS.format(condition="i.indisprimary")},
  {_KEY_COLUMNS.format(condition="i.indisreplident")},
  has_schema_privilege(r.oid, c.relnamespace, 'USAGE'),
  has_table_privilege(r.oid, c.oid, 'SELECT'),
  coalesce(c.relrowsecurity AND NOT (r.rolbypassrls OR r.rolsuper)
    AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE')), false),
  ARRAY(SELECT DISTINCT CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END
    FROM aclexplode(c.relacl) x WHERE x.privilege_type = 'TRUNCATE' AND x.grantee <> c.relowner ORDER BY 1),
  ARRAY(SELECT attname::text FROM pg_attribute
    WHERE attrelid = c.oid AND attgenerated <> '' AND NOT attisdropped ORDER BY attnum),
  ARRAY(SELECT attname::text FROM pg_attribute
    WHERE attrelid = c.oid AND attgenerated = 's' AND NOT attisdropped ORDER BY attnum),
  ARRAY(SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type d ON d.oid = t.typbasetype LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND (
      coalesce(e.typtype, d.typtype, t.typtype) IN ('c', 'm') OR e.typtype = 'd'
      OR coalesce(e.typname, d.typname, t.typname) = ANY (%s) OR e.typname = ANY (%s))
    ORDER BY a.attnum),
  ARRAY(SELECT a.attname::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
    WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attgenerated = '' AND NOT (a.attnotnull OR t.typnotnull)
      AND pg_get_expr(f.adbin, f.adrelid) !~* '^NULL(::.*)?$'
    ORDER BY a.attnum),
  (SELECT conname::text FROM pg_constraint WHERE conrelid = c.oid AND contype = 'p' AND condeferrable)
FROM pg_class c LEFT JOIN pg_roles r ON r.rolname = %s WHERE c.oid = to_regclass(%s)
"""  # noqa: S608


def table_facts(connection: Connection, table: TableName, *, role: str) -> TableFacts | None:
    """Read a table, and what a role may with it; None where there is none."""

    def facts(*row: Any) -> TableFacts:
        columns: list[Any] = [tuple(value) if isinstance(value, list) else value for value in row]
        return TableFacts(*columns)

    return _found(facts, connection, _TABLE, list(_LEFT_OUT), list(_ITEMS_LEFT_OUT), role, table.quoted)


_COLUMNS: Final = """
WITH RECURSIVE opened (number, name, written, generated, type, modifier, dimensions) AS (
  SELECT attnum, attname::text, format_type(atttypid, atttypmod), attgenerated <> '', atttypid, atttypmod,
    attndims::int
  FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
  UNION ALL
  SELECT number, name, written, generated, typbasetype, typtypmod, greatest(dimensions, typndims)
  FROM opened JOIN pg_type ON oid = type AND typtype = 'd')
SELECT o.name, o.written, coalesce(e.typname, t.typname)::text, e.oid IS NOT NULL, o.dimensions, o.modifier,
  pg_get_expr(f.adbin, f.adrelid)
FROM opened o JOIN pg_type t ON t.oid = o.type AND t.typtype <> 'd'
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
LEFT JOIN pg_attrdef f ON f.adrelid = to_regclass(%s) AND f.adnum = o.number AND NOT o.generated
ORDER BY o.number
"""


def column_facts(connection: Connection, table: TableName) -> tuple[ColumnFacts, ...]:
    """Read the columns of a table in their order; none where there is no table."""
    rows = connection.exec_driver_sql(_COLUMNS, (table.quoted, table.quoted))
    return tuple(ColumnFacts(*row) for row in rows)


def is_readable(connection: Connection, table: TableName) -> bool:
    """Return whether the login that asks may read the rows of a table."""
    asked = "SELECT has_table_privilege(%s, 'SELECT') AND has_schema_privilege(%s, 'USAGE')"
    return bool(connection.exec_driver_sql(asked, (table.quoted, table.schema)).scalar_one())


def publication_facts(connection: Connection, name: str) -> PublicationFacts | None:
    """Read a publication; None where there is none."""
    row = connection.exec_driver_sql(
        "SELECT array_remove(ARRAY[CASE WHEN pubinsert THEN 'insert' END, CASE WHEN pubupdate THEN 'update' END,"
        " CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END], NULL),"
        # Servers before 18 have no such column.
        " pubviaroot, coalesce(to_jsonb(p) ->> 'pubgencols', 'n') = 's', puballtables,"
        # Servers before 15 have no schemas in publications; a table of one has no entry of its own.
        " (SELECT count(*) FROM pg_publication_rel WHERE prpubid = p.oid)"
        " FROM pg_publication p WHERE pubname = %s",
        (name,),
    ).first()
    if row is None:
        return None
    operations, by_root, with_generated, all_tables, entries = row
    members = _members(connection, name)
    return PublicationFacts(
        frozenset(operations),
        by_root,
        with_generated,
        all_tables,
        enumerated=not all_tables and entries >= len(members),
        tables=frozenset(table for table, _, _ in members),
        filtered=frozenset(table for table, is_filtered, _ in members if is_filtered),
        partitions=frozenset(table for table, _, is_partition in members if is_partition),
    )


def _members(connection: Connection, name: str) -> Sequence[Any]:
    return connection.exec_driver_sql(
        "SELECT schemaname || '.' || tablename,"
        # Servers before 15 have neither filters nor lists of columns.
        " to_jsonb(p) ->> 'rowfilter' IS NOT NULL OR jsonb_array_length(to_jsonb(p) -> 'attnames') <"
        " (SELECT count(*) FROM pg_attribute WHERE attrelid = format('%%I.%%I', schemaname, tablename)::regclass"
        "  AND attnum > 0 AND NOT attisdropped AND attgenerated = ''),"
        " (SELECT relispartition FROM pg_class WHERE oid = format('%%I.%%I', schemaname, tablename)::regclass)"
        " FROM pg_publication_tables p WHERE pubname = %s",
        (name,),
    ).all()


def slot_facts(connection: Connection, name: str) -> ReplicationSlot | None:
    """Read a replication slot; None where there is none. On a standby, log counts up to what was replayed."""
    return _found(
        ReplicationSlot,
        connection,
        "SELECT slot_name, plugin, database, active, wal_status, (here - confirmed_flush_lsn)::bigint,"
        " (here - restart_lsn)::bigint, safe_wal_size FROM pg_replication_slots, LATERAL (SELECT CASE"
        " WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS here) AS log"
        " WHERE slot_name = %s",
        name,
    )


def clock(connection: Connection) -> datetime:
    """Return the time by the database's clock."""
    now: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    return now


@contextmanager
def typed_errors(engine: Engine, *, denied: str | None = None) -> Iterator[None]:
    """Turn what the database refuses into SourceNotReady; known by `orig`, SQLAlchemy's name for the driver's error.

    `denied` is the remedy where the login lacks a right: the caller knows whose right it is.
    """
    try:
        yield
    except Exception as error:
        refused = getattr(error, "orig", None)
        if refused is None:
            raise
        message = short_message(str(refused))
        lacks_a_right = getattr(refused, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE
        raise SourceNotReady(
            f"the source database refused: {message}",
            remedy=denied if denied and lacks_a_right else remedy_for(message),
            place=f"{engine.url.host}:{engine.url.port}/{engine.url.database}",
        ) from error


def not_of(source: Engine, config: Mapping[str, str]) -> str | None:
    """Say why a database is not the source of a connector with such a configuration; None where it may be.

    The database's name tells, and the port where the host is the same. Hosts are not compared: worker and caller may
    know one server by different names.
    """
    if config.get("connector.class") != PostgresConnector.JAVA_CLASS:
        return "it does not read PostgreSQL"
    url, reads = source.url, config.get("database.dbname", "")
    given = url.database or url.username
    if given != reads:
        return f"it reads database {reads}, and the one given is {given}"
    port = str(url.port or PostgresConnector.port)
    if url.host == config.get("database.hostname") and port != config.get("database.port", port):
        return f"it reads the server at port {config['database.port']}, and the one given is at {port}"
    return None
