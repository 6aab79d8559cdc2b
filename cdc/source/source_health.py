"""What a connector's source has and lacks: facts of the database turned into findings, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cdc.connect.failures import ANOTHER_LIFE, LOST_SLOT
from cdc.connectors.encodings import replaces_nulls
from cdc.findings import Finding, size
from cdc.identifiers import TableName, quoted
from cdc.source.captured_columns import column_findings
from cdc.source.catalogue import (
    PublicationFacts,
    ReplicationSlot,
    RoleFacts,
    ServerFacts,
    TableFacts,
    publication_facts,
    role_facts,
    server_facts,
    slot_facts,
    table_facts,
)
from cdc.source.signal_table import signal_findings

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cdc.connectors.postgres_connector import PostgresConnector

# Truncates are left out: their record has no key, and a compacted topic takes none.
# A slot without a limit that holds this much has been standing for a while, on a busy database and on a quiet one.
_MUCH: Final = 1 << 30
_RESTART: Final = "and restart PostgreSQL"
# pgoutput passes on the marks that move a slot and prove a stream since this version.
_OLDEST: Final = 140000
_NAMED: Final = 5
_PARTITIONED: Final = "p"
TABLES: Final = ("r", _PARTITIONED)


def source_findings(connection: Connection, connector: PostgresConnector) -> tuple[Finding, ...]:
    """Look at all that has to be there before a connector starts: server, role, tables, publication."""
    # Two tables may lack the same right to their schema.
    return tuple(dict.fromkeys(_source_findings(connection, connector)))


def _source_findings(connection: Connection, connector: PostgresConnector) -> Iterator[Finding]:
    server = server_facts(connection)
    yield from of_server(server, connector)
    if server.version < _OLDEST:
        # Its catalogue lacks columns that the others are asked for.
        return
    role = role_facts(connection, connector.user)
    publication = publication_facts(connection, connector.publication)
    yield from of_role(role, connector)
    yield from of_publication(publication, connector)
    for table in connector.table_names:
        facts = table_facts(connection, table, role=connector.user)
        yield from of_table(facts, table, connector, publication)
        if facts is not None and publication is not None:
            yield from of_membership(facts, table, publication, connector)
        if facts is not None and facts.kind in TABLES:
            yield from column_findings(connection, table, connector)
    yield from signal_findings(connection, connector)


def preparation_findings(connection: Connection, connector: PostgresConnector) -> Iterator[Finding]:
    """Look at what is not made for a connector: server, tables that can be captured, filters set on purpose."""
    server = server_facts(connection)
    yield from of_server(server, connector)
    if server.version < _OLDEST:
        return
    publication = publication_facts(connection, connector.publication)
    for table in connector.table_names:
        facts = table_facts(connection, table, role=connector.user)
        yield from _absent(table) if facts is None else _structure(facts, table)
        if facts is not None and publication is not None:
            yield from _unmade(table, publication, connector)


def rights_findings(connection: Connection, connector: PostgresConnector) -> Iterator[Finding]:
    """Look whether the role connects, and reads the tables; where it does not exist, nothing is found."""
    role = role_facts(connection, connector.user)
    if role is not None:
        yield from _connects(role, connector)
    for table in connector.table_names:
        if (facts := table_facts(connection, table, role=connector.user)) is not None:
            yield from _rights(facts, table, connector.user)


def slot_findings(connection: Connection, connector: PostgresConnector, *, read_to: int) -> Iterator[Finding]:
    """Look at a connector's slot; it has read the log up to an LSN, and then needs the slot it had: 0 for not yet."""
    server = server_facts(connection)
    if server.version < _OLDEST:
        return
    slot = slot_facts(connection, connector.slot)
    if read_to and not server.standby:
        yield of_life(connection, connector.name, read_to)
    yield from of_room(server, slot)
    if slot is None:
        yield _no_slot(connector, has_streamed=read_to > 0)
        return
    yield from of_slot(slot, connector, server)


def of_life(connection: Connection, connector: str, read_to: int) -> Finding:
    """Look whether the log that a connector has read up to an LSN is this server's: it must not end before that."""
    end = int(connection.exec_driver_sql("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").scalar_one())
    check = "life of the source"
    if read_to <= end:
        return Finding.ok(check, f"the log goes on from where connector {connector} has read it")
    message = f"the log ends at {end}, and connector {connector} has read one up to {read_to}"
    return Finding.error(check, f"{message}: this is another server, or a restored one", ANOTHER_LIFE)


def of_server(server: ServerFacts, connector: PostgresConnector) -> Iterator[Finding]:
    """Look at what the whole server must be like."""
    if server.database != connector.database:
        message = f"this is database {server.database}, the connector reads {connector.database}"
        yield Finding.error("database", message, "give the URL of the connector's database")
    if server.version < _OLDEST:
        message = f"the server is PostgreSQL {server.version // 10000}, whose pgoutput passes on no marks"
        yield Finding.error("server", message, f"upgrade it to PostgreSQL {_OLDEST // 10000} or newer")
    if server.standby:
        message = "this is a standby, which takes no heartbeats: a slot there does not move while its tables are quiet"
        yield Finding.error("server", message, "name the primary as the connector's host")
    if server.wal_level == "logical":
        yield Finding.ok("wal_level", "logical")
    else:
        message = f"wal_level is {server.wal_level}: set wal_level=logical and restart PostgreSQL"
        yield Finding.error("wal_level", message, f"ALTER SYSTEM SET wal_level = 'logical'; {_RESTART}")


def of_room(server: ServerFacts, slot: ReplicationSlot | None) -> Iterator[Finding]:
    """Look whether the server has room for the connector's slot and sender, and a limit to what slots may hold."""
    senders_needed = 0 if slot is not None and slot.active else 1
    for what, used, most, needed in (
        ("max_replication_slots", server.slots, server.max_slots, 1 if slot is None else 0),
        ("max_wal_senders", server.senders, server.max_senders, senders_needed),
    ):
        message = f"{used} of {most} in use"
        if used + needed <= most:
            yield Finding.ok(what, message)
        else:
            raise_it = f"ALTER SYSTEM SET {what} = {most + 10}; {_RESTART}"
            yield Finding.error(
                what, f"{message}, and {needed} more is required", f"drop slots without a reader, or {raise_it}"
            )
    if server.slot_cap is None:
        message = "no limit to the log that slots hold: one without a reader fills the disk and stops the database"
        remedy = "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; SELECT pg_reload_conf()"
        yield Finding.warning("max_slot_wal_keep_size", message, remedy)
    else:
        yield Finding.ok("max_slot_wal_keep_size", size(server.slot_cap))


def of_role(role: RoleFacts | None, connector: PostgresConnector) -> Iterator[Finding]:
    """Look at the connector's login."""
    user, check = connector.user, f"role {connector.user}"
    if role is None:
        remedy = f"CREATE ROLE {quoted(user)} LOGIN REPLICATION PASSWORD '…' (factfold cdc prepare does)"
        yield Finding.error(check, f"role {user} does not exist", remedy)
        return
    faults = [
        (not (role.can_login and role.replicates), "lacks LOGIN or REPLICATION", "LOGIN REPLICATION"),
        (role.expired, "has a password that is no longer valid", "VALID UNTIL 'infinity'"),
    ]
    findings = [
        Finding.error(check, f"role {user} {what}", f"ALTER ROLE {quoted(user)} {sql}")
        for is_so, what, sql in faults
        if is_so
    ]
    findings += _connects(role, connector)
    yield from findings or [Finding.ok(check, "logs in, replicates, connects")]


def _connects(role: RoleFacts, connector: PostgresConnector) -> Iterator[Finding]:
    if not role.connects:
        user = connector.user
        remedy = f"GRANT CONNECT ON DATABASE {quoted(connector.database)} TO {quoted(user)}"
        yield Finding.error(f"role {user}", f"role {user} may not CONNECT to {connector.database}", remedy)


def of_table(
    facts: TableFacts | None, table: TableName, connector: PostgresConnector, publication: PublicationFacts | None
) -> Iterator[Finding]:
    """Look at one captured table."""
    if facts is None:
        yield from _absent(table)
        return
    check = f"table {table}"
    findings = [
        *_structure(facts, table),
        *_rights(facts, table, connector.user),
        *_row_security(facts, table, connector.user),
        *_columns(facts, table, publication, connector),
        *_replaced_nulls(facts, table, connector),
        *_truncation(facts, table, connector),
    ]
    yield from findings or [
        Finding.ok(check, f"key ({', '.join(facts.key)}), replica identity {_IDENTITIES[facts.identity]}")
    ]
    if facts.kind == _PARTITIONED:
        # No catalogue shows earlier attachments and detachments, and a warning for them alone is impossible.
        yield Finding.ok(f"partitions of {table}", _UNLOGGED_MOVES)


_UNLOGGED_MOVES: Final = (
    "their rows move without changes where a partition is attached, detached, dropped or emptied by itself: "
    "run factfold cdc compare … --repair afterwards"
)
_IDENTITIES: Final = {"d": "DEFAULT", "n": "NOTHING", "f": "FULL", "i": "an index"}


def _absent(table: TableName) -> Iterator[Finding]:
    message = f"table {table} does not exist"
    yield Finding.error(f"table {table}", message, "create it, or take it out of the declaration")


def _structure(facts: TableFacts, table: TableName) -> Iterator[Finding]:
    yield from _shape(facts, table, f"table {table}")
    yield from _identity(facts, table, f"table {table}")


def _shape(facts: TableFacts, table: TableName, check: str) -> Iterator[Finding]:
    if facts.kind not in TABLES:
        yield Finding.error(check, f"{table} is no table: its rows are in no log", "capture the tables it is made of")
    elif not facts.logged:
        yield Finding.error(check, f"table {table} is unlogged: its changes are in no log", _alter(table, "SET LOGGED"))
    elif not facts.key:
        message = f"table {table} has no primary key: its records would have no key, and its updates would be refused"
        yield Finding.error(check, message, _alter(table, "ADD PRIMARY KEY (…)"))
    elif facts.deferrable_key:
        yield _deferrable(facts, table, check, quoted(facts.deferrable_key))


def _deferrable(facts: TableFacts, table: TableName, check: str, name: str) -> Finding:
    """The key of a row that took over another's is deleted after it is inserted, in the order of the log."""
    key = ", ".join(facts.key)
    message = (
        f"the primary key ({key}) of {table} is deferrable: rows that exchange keys in one transaction would be lost"
    )
    columns = ", ".join(map(quoted, facts.key))
    return Finding.error(
        check, message, _alter(table, f"DROP CONSTRAINT {name}, ADD CONSTRAINT {name} PRIMARY KEY ({columns})")
    )


def _identity(facts: TableFacts, table: TableName, check: str) -> Iterator[Finding]:
    remedy = _alter(table, "REPLICA IDENTITY DEFAULT")
    if facts.identity == "n":
        message = (
            f"table {table} has replica identity NOTHING: its updates and deletes would be refused by the database"
        )
        yield Finding.error(check, message, remedy)
    elif facts.identity == "i" and not set(facts.key) <= set(facts.identity_columns):
        message = f"table {table} has an index as replica identity that leaves out its primary key: deletes have no key"
        yield Finding.error(check, message, remedy)


def _rights(facts: TableFacts, table: TableName, user: str) -> Iterator[Finding]:
    # None where the role does not exist, which is another finding.
    if facts.schema_usable is False:
        message = f"role {user} may not USE schema {table.schema}"
        yield Finding.error(
            f"schema {table.schema}", message, f"GRANT USAGE ON SCHEMA {quoted(table.schema)} TO {quoted(user)}"
        )
    if facts.readable is False:
        message = f"role {user} may not SELECT from {table}"
        yield Finding.error(f"table {table}", message, f"GRANT SELECT ON TABLE {table.quoted} TO {quoted(user)}")


def _row_security(facts: TableFacts, table: TableName, user: str) -> Iterator[Finding]:
    if facts.row_security:
        message = f"row security of {table} hides rows from role {user}: the initial snapshot would leave them out"
        yield Finding.error(f"table {table}", message, f"ALTER ROLE {quoted(user)} BYPASSRLS")


def _columns(
    facts: TableFacts, table: TableName, publication: PublicationFacts | None, connector: PostgresConnector
) -> Iterator[Finding]:
    check = f"table {table}"
    published = facts.stored_generated if publication is not None and publication.with_generated else ()
    if generated := [name for name in facts.generated if name not in published]:
        names = ", ".join(generated)
        message = f"generated columns of {table} never reach its topic while streaming, only in the snapshot: {names}"
        publish = f"ALTER PUBLICATION {quoted(connector.publication)} SET (publish_generated_columns = stored)"
        yield Finding.warning(
            check, message, f"fill ordinary columns by a trigger; PostgreSQL 18, if stored: {publish}"
        )
    if facts.formless:
        message = f"Debezium has no form for columns of {table}, and leaves them out: {', '.join(facts.formless)}"
        remedy = "add a column of text that holds the same, or set include.unknown.datatypes"
        yield Finding.warning(check, message, remedy)


def _replaced_nulls(facts: TableFacts, table: TableName, connector: PostgresConnector) -> Iterator[Finding]:
    if not (facts.defaulted and replaces_nulls(connector.config())):
        return
    names, drop = ", ".join(facts.defaulted), f"ALTER {quoted(facts.defaulted[0])} DROP DEFAULT"
    message = f"a NULL in {names} of {table} would arrive as the column's DEFAULT: this encoding cannot tell them apart"
    remedy = (
        f"capture with encoding=PlainJson() or JsonWithSchemas(), or {_alter(table, drop)} (or SET NOT NULL) of each"
    )
    yield Finding.error(f"table {table}", message, remedy)


def _truncation(facts: TableFacts, table: TableName, connector: PostgresConnector) -> Iterator[Finding]:
    if facts.truncated_by:
        roles = ", ".join(facts.truncated_by)
        does = "stops the connector" if "truncate" in connector.operations else "leaves all rows in the topic"
        message = f"table {table} may be emptied by {roles} with TRUNCATE, which {does}"
        yield Finding.warning(f"table {table}", message, f"REVOKE TRUNCATE ON TABLE {table.quoted} FROM {roles}")


def of_publication(facts: PublicationFacts | None, connector: PostgresConnector) -> Iterator[Finding]:
    """Look at what the publication lets through."""
    name, check = connector.publication, f"publication {connector.publication}"
    if facts is None:
        tables = ", ".join(table.quoted for table in connector.table_names)
        remedy = f"CREATE PUBLICATION {quoted(name)} FOR TABLE {tables} WITH ({publication_options(connector)})"
        yield Finding.error(check, f"publication {name} does not exist", remedy)
        return
    missing = [operation for operation in connector.operations if operation not in facts.operations]
    if missing:
        message = f"publication {name} leaves out every {' and '.join(missing)}"
        operations = ", ".join(connector.operations)
        yield Finding.error(check, message, f"ALTER PUBLICATION {quoted(name)} SET (publish = '{operations}')")
    else:
        yield Finding.ok(check, f"{', '.join(connector.operations)} of {len(facts.tables)} tables")
    yield from _surplus(facts, connector)


def _surplus(facts: PublicationFacts, connector: PostgresConnector) -> Iterator[Finding]:
    surplus = sorted(facts.tables - facts.partitions - {str(table) for table in connector.table_names})
    if not surplus:
        return
    named = ", ".join([*surplus[:_NAMED], *(["…"] if len(surplus) > _NAMED else [])])
    message = f"publication {connector.publication} lets more through than is captured, sent and thrown away: {named}"
    remedy = "nothing, if another connector reads them; else declare a publication of its own"
    if facts.enumerated:
        remedy = f"{remedy}, or ALTER PUBLICATION {quoted(connector.publication)} DROP TABLE …"
    yield Finding.warning(f"publication {connector.publication}", message, remedy)


def publication_options(connector: PostgresConnector) -> str:
    """Return the options of our publications as SQL; by root, a partition's rows come as its table's."""
    return f"publish = '{', '.join(connector.operations)}', publish_via_partition_root = true"


def of_membership(
    facts: TableFacts, table: TableName, publication: PublicationFacts, connector: PostgresConnector
) -> Iterator[Finding]:
    """Look whether a publication lets all of a table through."""
    name, check = connector.publication, f"publication {connector.publication}"
    if facts.kind == _PARTITIONED and not publication.by_root:
        message = f"publication {name} names the partitions of {table} and not the table: its changes would be left out"
        yield Finding.error(check, message, f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)")
    elif str(table) not in publication.tables and publication.all_tables:
        yield _as_part(table, name)
    elif str(table) not in publication.tables:
        message = f"publication {name} leaves out {table}"
        yield Finding.error(check, message, f"ALTER PUBLICATION {quoted(name)} ADD TABLE {table.quoted}")
    elif str(table) in publication.filtered:
        message, remedy = _filter(table, name)
        yield Finding.warning(check, message, remedy)


def _as_part(table: TableName, name: str) -> Finding:
    message = f"publication {name} lets the changes of {table} through as those of the table it is part of"
    return Finding.error(f"publication {name}", message, "capture that table, or declare a publication of its own")


def _filter(table: TableName, name: str) -> tuple[str, str]:
    message = f"publication {name} hides rows or columns of {table}, which the snapshot reads: their changes never come"
    alter = f"ALTER PUBLICATION {quoted(name)}"
    # In one transaction: between two, changes of the table would be in no stream.
    return message, f"BEGIN; {alter} DROP TABLE {table.quoted}; {alter} ADD TABLE {table.quoted}; COMMIT"


def _unmade(table: TableName, publication: PublicationFacts, connector: PostgresConnector) -> Iterator[Finding]:
    """Capture works with a filter set on purpose: a check warns of it, and a preparation fails."""
    if str(table) in publication.filtered:
        yield Finding.error(f"publication {connector.publication}", *_filter(table, connector.publication))
    # PostgreSQL adds no table to one that has them all.
    elif publication.all_tables and publication.by_root and str(table) not in publication.tables:
        yield _as_part(table, connector.publication)


def of_slot(slot: ReplicationSlot, connector: PostgresConnector, server: ServerFacts) -> Iterator[Finding]:
    """Look at a slot that is there."""
    check = f"slot {slot.name}"
    if slot.plugin != "pgoutput" or slot.database != connector.database:
        message = f"slot {slot.name} is of {slot.plugin or 'physical replication'} in {slot.database or 'no database'}"
        yield Finding.error(check, message, "choose another slot name: this one has another reader")
    elif slot.wal_status == "lost":
        yield Finding.error(check, f"slot {slot.name} has lost its place: the log it needs is deleted", LOST_SLOT)
    elif slot.wal_status == "unreserved":
        message = f"slot {slot.name} is about to lose its place: it holds {_held(slot)}"
        yield Finding.error(check, message, _raise_cap(server))
    elif not slot.active:
        message = f"slot {slot.name} has no reader and holds {_held(slot)}"
        remedy = f"factfold cdc resume {connector.name}; without the connector: cdc.drop_slot(engine, {slot.name!r})"
        yield Finding.warning(check, message, remedy)
    elif (slot.retained_bytes or 0) > (server.slot_cap // 2 if server.slot_cap else _MUCH):
        message = f"slot {slot.name} holds {_held(slot)}: its reader does not keep up, or a transaction is open"
        remedy = "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start; and factfold cdc status"
        yield Finding.warning(check, message, remedy)
    else:
        yield Finding.ok(check, f"read, {size(slot.lag_bytes or 0)} behind, holds {_held(slot)}")


def _no_slot(connector: PostgresConnector, *, has_streamed: bool) -> Finding:
    check, message = f"slot {connector.slot}", f"slot {connector.slot} does not exist"
    if has_streamed:
        return Finding.error(check, f"{message}, and the connector has streamed from it", LOST_SLOT)
    return Finding.ok(check, f"{message}: the first start makes it")


def _held(slot: ReplicationSlot) -> str:
    return "nothing any more" if slot.retained_bytes is None else f"{size(slot.retained_bytes)} of log"


def _raise_cap(server: ServerFacts) -> str:
    doubled = (server.slot_cap or _MUCH) * 2 >> 20
    return f"ALTER SYSTEM SET max_slot_wal_keep_size = '{doubled}MB'; SELECT pg_reload_conf(); and let it be read on"


def _alter(table: TableName, action: str) -> str:
    return f"ALTER TABLE {table.quoted} {action}"
