"""The outboxes of a store in PostgreSQL, as the relay reads them: over one connection, which leads as long as it lives.

The lock belongs to the session, and every page is read in that session: a page that can be read proves that no other
relay leads. A pooler that shares sessions by transaction would lend the lock to other clients: connect directly.

The records of a relay: what it has published, and what the topics do not hold yet.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from eventstore.backends.sql.database import dialect_of
from eventstore.backends.sql.dialect import typed_failures
from eventstore.backends.sql.models import Tables
from eventstore.backends.sql.ways import SCHEMA_NAME, supported
from eventstore.closing import Closing
from eventstore.errors import RelayError, StoreNotPrepared, UnsupportedBackend
from eventstore.identifiers import Position
from eventstore.shown_urls import shown_url
from eventstore.topics import HEADER_COLUMNS, HEADER_CONSTANTS

# "rela" as a number; the second half of the lock's key is the store's schema.
_LEADER_LOCK: Final = 0x72656C61
# One transaction of Kafka's takes 10 to 20 ms whatever is in it; 5,000 events take ten times as long.
PAGE_EVENTS: Final = 5_000
# What a page holds in memory, here and in librdkafka's queue: one event may be 16 MB.
PAGE_BYTES: Final = 16 << 20
# A leader asks for a page every few milliseconds; what it does in between, at the worst, is to wait 30 s for Kafka.
LEASE_SECONDS: Final = 60
# Below zero lies what was renumbered after a restore.
BEFORE_ALL: Final = Position(-(1 << 62), 0)

_HEADER_NAMES: Final = tuple(header for _, header in HEADER_COLUMNS)
_HEADERS: Final = ", ".join(f"{column}::text" for column, _ in HEADER_COLUMNS)
_RECORD: Final = f"topic, partition, message_key, payload, {{}}, {_HEADERS}"

_FENCE: Final = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_PAGE: Final = """
select {event} from (
    select e.*, sum(bytes) over (order by order_xid, position) - bytes as bytes_before
    from (
        select *, coalesce(octet_length(payload), 0) as bytes from {events}
        where order_xid < {fence} and (order_xid, position) > (%(order_xid)s, %(position)s)
        order by order_xid, position limit %(events)s
    ) e
) e
where e.bytes_before < %(bytes)s order by e.order_xid, e.position
"""
_SCHEMAS: Final = "select {schema} from {schemas} where message_key <> all(%(known)s) order by time, schema_id"
# The last event that a topic holds may have been deleted here, and its deletion not be published yet.
_POSITIONS: Final = """
select id::text, order_xid, position from {events} where id = any(%(ids)s::uuid[])
union all select id::text, order_xid, position from {deleted_events} where id = any(%(ids)s::uuid[])
"""

_ENDS: Final = """
unnest(%(categories)s::text[], %(topics)s::text[], %(partitions)s::int[], %(xids)s::bigint[], %(positions)s::bigint[])
    as r(category, topic, partition, order_xid, position)
"""
_AFTER_END: Final = """
    from {events} e
    where e.category = r.category and e.topic = r.topic and e.partition = r.partition
        and (e.order_xid, e.position) > (r.order_xid, r.position)
"""
_FIRST_MISSING: Final = """
select m.order_xid, m.position from {ends} cross join lateral (
    select e.order_xid, e.position {after_end} and e.order_xid < {fence} order by e.order_xid, e.position limit 1
) m
order by m.order_xid, m.position limit 1
"""
_WAITING: Final = """
select r.category, r.topic, sum(m.number)::bigint, min(m.oldest)
from {ends} cross join lateral (select count(*) as number, min(e.time) as oldest {after_end}) m
group by r.category, r.topic order by r.category
"""

_LEADER: Final = """
select format('%%s (process %%s of the database)', coalesce(nullif(a.application_name, ''), 'a session'), a.pid)
from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.granted and l.classid = %(class)s and l.objid = %(object)s and l.objsubid = 2
    and l.database = (select oid from pg_database where datname = current_database())
"""
# The session of a leader whose machine failed ends after ten seconds, not after two hours; that of a frozen leader
# after LEASE_SECONDS (PostgreSQL 14). Without statistics, as after a large import, the planner sorted the whole rest of
# the table for each page: 150 ms became 25.
_SESSION: Final = """
select set_config(s.name, wanted.value, false)
from (
    values ('application_name', %(name)s), ('idle_session_timeout', %(lease)s), ('tcp_keepalives_idle', '4'),
        ('tcp_keepalives_interval', '2'), ('tcp_keepalives_count', '3'),
        ('enable_bitmapscan', 'off'), ('enable_seqscan', 'off')
) as wanted(name, value) join pg_settings s using (name)
"""
# Stays the same through a failover to a physical standby, and is another one after a restore into a new cluster.
_IDENTITY: Final = "select system_identifier || '-' || current_database() from pg_control_system()"
# A slot does not say which publications its reader asks for.
_CONNECTORS: Final = """
select p.pubname, s.slot_name
from pg_publication_tables p, pg_replication_slots s
where to_regclass(format('%%I.%%I', p.schemaname, p.tablename)) = to_regclass(%(events)s)
    and s.slot_type = 'logical' and s.plugin = 'pgoutput' and s.database = current_database()
    and s.slot_name <> all(%(ignored)s)
order by s.active desc, p.pubname = s.slot_name desc
"""


# No transaction of this cluster can have written what comes after all of its transactions.
_RESTORED: Final = """
select exists (select from {events} where order_xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
"""

# As Kafka's client takes them.
Headers = list[tuple[str, str | bytes | None]]


class OutboxRecord(NamedTuple):
    """A row as the record of the fixed layout; no value deletes an event. `position` is (0, 0) for a schema."""

    topic: str
    partition: int
    key: str
    value: bytes | None
    headers: Headers
    position: Position


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """How far a partition of a category's topic has come: the place of the last event in it."""

    category: str
    topic: str
    partition: int
    position: Position = BEFORE_ALL


@dataclass(frozen=True, slots=True)
class Waiting:
    """Committed events of a category that its topic does not hold yet, and the time of the first of them."""

    category: str
    topic: str
    events: int
    oldest: datetime | None

    @property
    def seconds(self) -> float:
        """The age of the first of them, 0 without any."""
        return 0.0 if self.oldest is None else max(0.0, (datetime.now(UTC) - self.oldest).total_seconds())


class Outbox(Closing):
    """The tables `events` and `schemas`, read in one session.

    UnsupportedBackend, StoreUnavailable, StoreNotPrepared.
    """

    def __init__(self, engine: Engine, tables: Tables) -> None:
        if not supported(engine, "the relay").has_sessions:
            raise UnsupportedBackend(
                f"there is no relay for {engine.dialect.name}: it needs PostgreSQL's sessions and transaction ids",
                remedy="keep the store in PostgreSQL, or subscribe to the store itself, which needs no Kafka",
                place=shown_url(engine.url),
            )
        self._engine, self._dialect = engine, dialect_of(engine, tables)
        self._failure = engine.dialect.loaded_dbapi.Error
        self._names = _statement_parts(f'"{tables.schema}".' if tables.schema else "")
        self._driver = self._session(engine)
        self._ask(_SESSION, name=f"factfold relay on {socket.gethostname()}", lease=f"{LEASE_SECONDS}s")
        rows = self._ask(SCHEMA_NAME, events=self._names["events"])
        # Without the table, the first page says so.
        self._schema: str = rows[0][0] if rows else ""
        self._lock = {"class": _LEADER_LOCK, "object": zlib.crc32(self._schema.encode()) & 0x7FFFFFFF}

    def lead(self) -> bool:
        """Take the lock that one session at a time holds; False where another one has it."""
        return bool(self._ask("select pg_try_advisory_lock(%(class)s, %(object)s)", **self._lock)[0][0])

    def leader(self) -> str | None:
        """Return the holder of the lock, or None."""
        rows = self._ask(_LEADER, **self._lock)
        return rows[0][0] if rows else None

    def identity(self) -> str:
        """Return a name that this store has for every relay, and no other store has."""
        return f"factfold-relay-{self._ask(_IDENTITY)[0][0]}-{self._schema}"

    def check_publishable(self, ignored_slots: Collection[str] = ()) -> None:
        """Look for what would have events published twice or never.

        RelayError where a connector publishes these tables, or may go on doing so. StoreNotPrepared where
        new events would sort before those of the cluster that the store was restored from.
        """
        if self._ask(_RESTORED)[0][0]:
            raise _not_renumbered(self._names["events"])
        connectors = self._ask(_CONNECTORS, events=self._names["events"], ignored=list(ignored_slots))
        if connectors:
            raise _connector_found(*connectors[0])

    def page(self, after: Position, *, events: int = PAGE_EVENTS) -> list[OutboxRecord]:
        """Return the next events behind the fence: so many at most, and about 16 MB."""
        asked = {"order_xid": after.order_xid, "position": after.position, "events": events, "bytes": PAGE_BYTES}
        return [_record(*row, constants=HEADER_CONSTANTS) for row in self._ask(_PAGE, **asked)]

    def schemas(self, known: Collection[str]) -> list[OutboxRecord]:
        """Return the schemas whose keys are not known, by the time they were registered."""
        return [_record(*row) for row in self._ask(_SCHEMAS, known=list(known))]

    def positions(self, ids: Iterable[str]) -> dict[str, Position]:
        """Return the places of those events that are here."""
        return {row[0]: Position(row[1], row[2]) for row in self._ask(_POSITIONS, ids=list(ids))}

    def first_missing(self, ends: Sequence[PartitionEnd]) -> Position | None:
        """Return the place of the first event behind the fence that its partition does not hold; None without one."""
        rows = self._ask(_FIRST_MISSING, **_columns(ends))
        return Position(*rows[0]) if rows else None

    def waiting(self, ends: Sequence[PartitionEnd]) -> list[Waiting]:
        """Return what every category has behind the ends of its partitions, beyond the fence too."""
        return [Waiting(*row) for row in self._ask(_WAITING, **_columns(ends))]

    def close(self) -> None:
        """End the session, and with it the lock."""
        self._driver.close()

    def _session(self, engine: Engine) -> Any:
        """Open a connection outside of the pool: closing it releases the lock."""
        with typed_failures(engine, self._dialect):
            try:
                pooled = engine.raw_connection()
            except self._failure as error:
                raise DBAPIError.instance("connect", None, error, self._failure) from error
        driver: Any = pooled.driver_connection
        pooled.detach()
        driver.autocommit = True
        return driver

    def _ask(self, statement: str, **values: Any) -> list[Any]:
        with typed_failures(self._engine, self._dialect):
            text = statement.format(**self._names)
            try:
                # Binary: a payload as it is, and not as hexadecimal text.
                rows: list[Any] = self._driver.cursor(binary=True).execute(text, values).fetchall()
            except self._failure as error:
                raise DBAPIError.instance(text, None, error, self._failure) from error
        return rows


def _statement_parts(schema: str) -> dict[str, str]:
    events = f"{schema}events"
    return {
        "events": events,
        "schemas": f"{schema}schemas",
        "deleted_events": f"{schema}deleted_events",
        "event": _RECORD.format("order_xid, position"),
        "schema": _RECORD.format("0, 0"),
        "fence": _FENCE,
        "ends": _ENDS,
        "after_end": _AFTER_END.format(events=events),
    }


def _record(
    topic: str,
    partition: int,
    key: str,
    value: bytes | None,
    order_xid: int,
    position: int,
    *header_values: str | None,
    constants: Sequence[tuple[str, str]] = (),
) -> OutboxRecord:
    headers: Headers = [*zip(_HEADER_NAMES, header_values, strict=True), *constants]
    return OutboxRecord(topic, partition, key, value, headers, Position(order_xid, position))


def _columns(ends: Sequence[PartitionEnd]) -> dict[str, list[Any]]:
    return {
        "categories": [end.category for end in ends],
        "topics": [end.topic for end in ends],
        "partitions": [end.partition for end in ends],
        "xids": [end.position.order_xid for end in ends],
        "positions": [end.position.position for end in ends],
    }


def _connector_found(publication: str, slot: str) -> RelayError:
    return RelayError(
        f"publication {publication!r} has the events, and slot {slot!r} may be its connector's: both would publish",
        remedy=f"keep the connector, or delete it, pg_drop_replication_slot('{slot}') and DROP PUBLICATION. "
        f"If the slot reads other tables, give --ignore-slot {slot}",
        place=slot,
        code="outbox-connector-found",
    )


def _not_renumbered(table: str) -> StoreNotPrepared:
    return StoreNotPrepared(
        "the store was restored from another cluster, whose transaction ids were higher: new events would come before",
        remedy="factfold store renumber",
        place=f"table {table}",
        code="store-restored",
    )


@dataclass(frozen=True, slots=True)
class RelayReport:
    """What a relay has published since it was started.

    Attributes:
        events: Records of events.
        schemas: Records of schemas.
        transactions: The Kafka transactions of these records.

    Examples:
        >>> Relay(store, Settings()).run(stop=Event(), once=True).events
        42
    """

    events: int = 0
    schemas: int = 0
    transactions: int = 0

    def plus(self, *, events: int, schemas: int) -> RelayReport:
        """Return the report after one more transaction."""
        return RelayReport(self.events + events, self.schemas + schemas, self.transactions + 1)


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """The leader, None if no relay leads, and what each category's topic does not hold yet.

    Examples:
        >>> relay_status(store, Settings()).leader
        'factfold relay on relay-1 (process 4711 of the database)'
    """

    leader: str | None
    waiting: tuple[Waiting, ...]

    @property
    def events(self) -> int:
        """How many events wait."""
        return sum(one.events for one in self.waiting)

    @property
    def seconds(self) -> float:
        """The age of the oldest event that waits, 0 without any."""
        return max((one.seconds for one in self.waiting), default=0.0)
