"""The event store on one SQL database.

A tenant is a store of its own: a schema in the shared database, and topics that no other tenant has.

The schema of `acme` is `tenant_acme`, the topic of its orders `acme-order`. A name has no dash and a category none, so
no two tenants and no store without tenants meet in a topic; neither do branches, which have a dot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypedDict, Unpack
from uuid import UUID

from sqlalchemy import URL, Connection, Engine, inspect

from eventstore.aggregates.aggregate import Aggregate
from eventstore.backends.batch import Draft
from eventstore.backends.sql.catalogue import SqlCatalogue, StoredSnapshots
from eventstore.backends.sql.database import Database, dialect_of, renumber, restored
from eventstore.backends.sql.dialect import typed_failures
from eventstore.backends.sql.engines import engine_for, url_of
from eventstore.backends.sql.keys import SqlKeys
from eventstore.backends.sql.models import MIGRATIONS, Tables
from eventstore.backends.sql.reading import JoinedStreams, StoredEvents
from eventstore.backends.sql.transfer.contents import Format, Progress, export_path
from eventstore.backends.sql.transfer.files import Exporter, ExportReport, Importer, ImportReport, Taken
from eventstore.backends.sql.ways import WAYS
from eventstore.backends.sql.writing import Appender, ClosedStreams
from eventstore.closing import Closing
from eventstore.erasure import Erasure, KeyStore, MasterKeys, PersonalData, keys_elsewhere
from eventstore.errors import DeclarationError, UnsupportedBackend
from eventstore.fields.serialization import AvroDecoder
from eventstore.identifiers import (
    ExpectedVersion,
    StreamName,
    check_source,
    check_subject,
    check_tenant,
    require_like,
)
from eventstore.schema_registry import RegisteredSchema, SchemaRegistry
from eventstore.shown_urls import shown_url
from eventstore.store import AppendResult, Category, Metadata, StoreVersion, StreamAppend
from eventstore.topics import DEFAULT_SOURCE


def _now() -> datetime:
    return datetime.now(UTC)


class TenantOptions(TypedDict, total=False):
    """Options of every store, and of a tenant's."""

    registry: SchemaRegistry | None
    clock: Callable[[], datetime]
    new_id: Callable[[], UUID] | None
    keys: KeyStore | MasterKeys | None


class StoreOptions(TenantOptions, total=False):
    """Options of every store, as in SqlEventStore."""

    schema: str | None
    source: str
    topic_prefix: str | None


class SqlEventStore(StoredEvents, ClosedStreams, StoredSnapshots, Closing):
    """An event store in PostgreSQL (`postgresql+psycopg://…`) or SQLite (`sqlite:///shop.db`).

    Args:
        database: A URL, or an engine. The caller disposes of an engine.
        schema: A database schema (PostgreSQL).
        source: The CloudEvents source of all events, which names the service. New categories get topics such as
            `shop.order` for the source `/shop`.
        topic_prefix: The prefix of new topics, instead of one from `source`.
        registry: Checks the schemas of new event types and gives their ids. Without one, ids are fingerprints.
        clock: Gives the time of events.
        new_id: Makes the ids of events that come without one, by default UUIDs of version 7.
        keys: Master keys for data keys in this store, or a key store. They seal and open personal fields.

    Examples:
        >>> with SqlEventStore("sqlite:///shop.db", source="/shop") as store:
        ...     store.create_tables()
        ...     store.register(Order)
    """

    def __init__(
        self,
        database: str | URL | Engine,
        *,
        schema: str | None = None,
        source: str = DEFAULT_SOURCE,
        topic_prefix: str | None = None,
        registry: SchemaRegistry | None = None,
        clock: Callable[[], datetime] = _now,
        new_id: Callable[[], UUID] | None = None,
        keys: KeyStore | MasterKeys | None = None,
    ) -> None:
        if isinstance(keys, str):
            raise DeclarationError("keys= is a text", remedy="give MasterKeys.parse(text)")
        self._owns_engine = not isinstance(database, Engine)
        self.engine = database if isinstance(database, Engine) else engine_for(database)
        self.tables = Tables(schema)
        self.source = check_source(source)
        self.topic_prefix = topic_prefix or ""
        self._database = Database(self.engine, self.tables)
        self._clock, self._new_id = clock, new_id
        self._catalogue = SqlCatalogue(self._database, source=source, topic_prefix=topic_prefix, registry=registry)
        self._subjects = SqlKeys(self._database, keys if isinstance(keys, MasterKeys) else None)
        self._keys = self._subjects if isinstance(keys, MasterKeys) else keys
        self._read_from(self._database, AvroDecoder(self._catalogue.schema), PersonalData(self._keys))
        self._appender = Appender(self._database)

    def create_tables(self) -> None:
        """Create the tables that are missing, or migrate those of an older release.

        Safe to call again, and from many processes at once. It costs two queries if there is nothing to do. Raises
        StoreNotPrepared if a newer release migrated the tables, or a table or schema cannot be used.
        """
        self._database.create_tables()

    def version(self) -> StoreVersion:
        """Return the migration of the tables (`installed`), and the `newest` one, which this release needs."""
        return self._database.version()

    def migration_sql(self) -> str:
        """Return the SQL that `create_tables` would run, empty if the tables are current."""
        return self._database.migration_sql()

    def register(self, *aggregates: type[Aggregate]) -> None:
        """Store the categories and schemas of aggregates before their first event. Raises SchemaIncompatible."""
        for aggregate in aggregates:
            require_like(aggregate, "event_types", "an aggregate", takes="classes that inherit from Aggregate")
        self._catalogue.event_types(kind for aggregate in aggregates for kind in aggregate.event_types.values())
        self._catalogue.categories([aggregate.category for aggregate in aggregates])

    def declare_category(self, name: str, *, partitions: int, topic: str | None = None) -> Category:
        """Create a category with a partition count of its own. Raises InvalidArgument if it has another."""
        return self._catalogue.declare(name, partitions=partitions, topic=topic)

    def categories(self) -> list[Category]:
        """Return every category, by name, with its `topic` and its number of `partitions`."""
        return self._catalogue.all_categories()

    def topics_of(self, names: Sequence[str]) -> dict[str, str]:
        """Return the topics of categories, for new ones those that they will get.

        Raises the errors of `topic_of_category`.
        """
        known = {category.name: category.topic for category in self.categories()}
        return {name: known.get(name) or self._catalogue.own_topic(name) for name in names}

    def schemas(self) -> list[RegisteredSchema]:
        """Return every registered schema, by id."""
        return self._catalogue.all_schemas()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema. Raises UnknownSchema."""
        return self._catalogue.schema(schema_id)

    def append(
        self,
        stream: StreamName | str,
        events: Sequence[object],
        *,
        expected: ExpectedVersion,
        metadata: Metadata | None = None,
        connection: Connection | None = None,
    ) -> AppendResult:
        """Append to one stream. Raises the errors of `append_batch`."""
        appends = [StreamAppend(stream, events, expected, metadata)]
        return self.append_batch(appends, connection=connection)[0]

    def append_batch(
        self, appends: Sequence[StreamAppend], *, connection: Connection | None = None
    ) -> list[AppendResult]:
        """Append to many streams, all or none, in one statement. Results have the order of the appends.

        Events with ids of their own (NewEvent) are appended once: repeating the whole append returns the first results.

        Args:
            appends: The appends, one for each stream.
            connection: Append in the caller's transaction. After a lost race, PostgreSQL can only roll it back.

        Raises:
            WrongExpectedVersion: A stream is at another version than expected.
            FactfoldError: StreamDeleted or StreamArchived of a stream, InvalidArgument, InvalidEventData or
                EventIdTaken of an event, SchemaIncompatible, RegistryUnreachable or another SchemaError of a new
                schema, StoreUnavailable, OutcomeUnknown or StoreNotPrepared of the database.
        """
        if not appends:
            return []
        draft = Draft.of(appends)
        with self._database.joined(connection) as shared:
            draft = self._catalogue.registered(draft, connection=shared)
            categories = self._catalogue.categories(draft.categories, connection=shared)
            personal = self._sealing(draft, shared)
        batch = draft.batch(categories, source=self.source, clock=self._clock, new_id=self._new_id, personal=personal)
        return self._appender.append(batch, connection)

    def within(self, connection: Connection) -> JoinedStreams:
        """Return the streams as the caller's transaction sees and writes them. `Dispatcher.within` uses it.

        Other readers see what is appended when the caller commits, together with the rows of that transaction.
        """
        # A schema or a key that is new may be in this transaction only, where one writer locks out all others.
        shared = connection if self._database.dialect.single_writer else None
        decoder = AvroDecoder(partial(self._catalogue.schema, connection=shared))
        keys = self._subjects.within(connection) if shared and self._keys is self._subjects else self._keys
        append = partial(self.append_batch, connection=connection)
        return JoinedStreams(append, self._database.within(connection), decoder, PersonalData(keys))

    def _sealing(self, draft: Draft, shared: Connection | None) -> PersonalData:
        """What seals an append; where its subjects stand is noted before, and stays noted where it fails."""
        if not draft.subjects:
            return PersonalData(None)
        subjects = self._subjects if shared is None else self._subjects.within(shared)
        subjects.note(draft.subjects)
        return PersonalData(subjects if self._keys is self._subjects else self._keys)

    def erase(self, subject: str) -> Erasure:
        """Destroy the keys of a subject: every event about it shows placeholders from now on, in every copy.

        Aggregate snapshots of its streams are deleted, and former rows are removed from the database's files.
        Safe to call again. Raises KeysMissing if the store was opened without keys and never had a key of the subject.
        Raises InvalidIdentifier or StoreUnavailable.

        Returns:
            The number of `keys`, the names of `streams`, the number of `snapshots`, and what is `left` in files.
        """
        streams = self._subjects.streams(check_subject(subject))
        held = self._keys or self._subjects
        keys = held.destroy(subject) if isinstance(held, SqlKeys) else held.erase(subject)
        dropped = self._drop_snapshots(streams)
        left = self._scrub(held, streams)
        if streams and not keys and self._keys is None and not self._subjects.was_here(subject):
            raise keys_elsewhere(subject, streams[0])
        return Erasure(subject, keys, streams, dropped, left)

    def _scrub(self, held: KeyStore, streams: Sequence[str]) -> list[str]:
        """Remove former rows of keys and snapshots from their databases' files; return what keeps them, once each."""
        left = held.scrub() if isinstance(held, SqlKeys) else []
        snapshots = self._database.scrub([self.tables.snapshots]) if streams else []
        return list(dict.fromkeys([*left, *snapshots]))

    def export_file(
        self,
        path: str | Path,
        *,
        format: Format | None = None,
        category: str | None = None,
        keys: bool = False,
        on_progress: Progress = lambda done, total: None,
    ) -> ExportReport:
        """Write all events behind the fence, or a category's, to a file that appears when it is whole.

        ``format`` is jsonl or parquet (which needs pyarrow), by default as the file's suffix says. With ``keys`` the
        data keys of personal fields go along, wrapped as they are. An erasure does not reach such a file.
        Raises DeclarationError for that where a key store elsewhere has them.
        """
        if keys:
            self._require_own_keys()
        with export_path(path) as file:
            return Exporter(self._database, self._catalogue).export(file, category, format, on_progress, keys=keys)

    def import_file(
        self,
        path: str | Path,
        *,
        format: Format | None = None,
        keys: bool = False,
        erasures: bool = False,
        topics: bool = False,
        on_progress: Progress = lambda done, total: None,
    ) -> ImportReport:
        """Store the events of an exported file under their ids, versions and times. Repeated, what is missing.

        The whole file is checked, and compared with the store, before anything of it is applied. Then each batch of
        some thousand is stored whole or not at all. A category that is here keeps its topic and its partitions.

        With ``keys`` the data keys that came along are taken over. One that was destroyed here stays destroyed. With
        ``erasures`` a key that the file says was destroyed is destroyed here too. With ``topics`` new categories are
        published to the topics that the file names. Raises ImportConflict if one of the two would be needed, or an
        event stands otherwise here. InvalidExport names the line. Raises KeysMissing if events could not be read
        here, for want of data keys or of the master keys that open them. Raises SchemaError.
        """
        if keys:
            self._require_own_keys()
        foreign = None if self._keys is self._subjects else self._keys
        importer = Importer(self._database, self._catalogue, self._subjects, foreign)
        taken = Taken(self._subjects.master() if keys else None, erasures, topics)
        with export_path(path) as file:
            return importer.load(file, format, on_progress, taken=taken)

    def _require_own_keys(self) -> None:
        if self._keys is not None and self._keys is not self._subjects:
            raise DeclarationError(
                "the keys of this store are in another key store, and cannot be exported with it",
                remedy="export and import without keys, and open the other store with the same key store",
            )

    def ahead_of_cluster(self) -> int:
        """Return by how many transaction ids the store is ahead of its cluster: 0, unless it came from another one."""
        return restored(self._database)

    def renumber(self, *, published: bool = False) -> int:
        """Move a restored store's order behind its cluster's transaction ids. Return by how much.

        Raises StoreNotPrepared if a replication slot reads this database, unless `published` confirms that its
        connector takes the updates (`OutboxSource(on_update="warn")`).
        """
        return renumber(self._database, published=published)

    def close(self) -> None:
        """Close the connections that the store opened itself."""
        if self._owns_engine:
            self.engine.dispose()


_SCHEMA: Final = "tenant_"


def tenant_schema(tenant: str) -> str:
    """Return the database schema of a tenant; InvalidIdentifier."""
    return f"{_SCHEMA}{check_tenant(tenant)}"


def tenant_store(
    database: str | URL | Engine,
    tenant: str,
    *,
    source: str | None = None,
    **options: Unpack[TenantOptions],
) -> SqlEventStore:
    """Open the event store of one tenant. `create_tables()` creates it.

    Args:
        database: A URL, or an engine that all tenants share.
        tenant: The tenant's name.
        source: The CloudEvents source, by default `/` and the tenant. Categories get topics of the tenant.
        registry: Checks the schemas of new event types and gives their ids.
        clock: Gives the time of events.
        new_id: Makes the ids of events that come without one.
        keys: As in SqlEventStore. With master keys, each tenant has data keys of its own.

    Raises:
        InvalidIdentifier: The tenant's name is no name of a database schema.
        UnsupportedBackend: The database is not PostgreSQL.

    Examples:
        >>> with tenant_store(engine, "acme") as store:
        ...     store.create_tables()
    """
    schema = tenant_schema(tenant)
    _require_schemas(database)
    source = source or f"/{tenant}"
    return SqlEventStore(database, schema=schema, source=source, topic_prefix=f"{tenant}-", **options)


def tenants(engine: Engine) -> list[str]:
    """Return the tenants that have a store in a database, by name. Raises StoreUnavailable.

    Examples:
        >>> tenants(engine)
        ['acme']
    """
    _require_schemas(engine)
    with typed_failures(engine, dialect_of(engine, Tables(None))):
        looked = inspect(engine)
        schemas = [name for name in looked.get_schema_names() if name.startswith(_SCHEMA)]
        stores = [name for name in schemas if looked.has_table(MIGRATIONS, schema=name)]
    return sorted(name.removeprefix(_SCHEMA) for name in stores)


def _require_schemas(database: str | URL | Engine) -> None:
    url = database.url if isinstance(database, Engine) else url_of(database)
    ways = WAYS.get(url.get_backend_name())
    if ways is not None and not ways.has_schemas:
        raise UnsupportedBackend(
            "SQLite has no schemas to keep tenants apart",
            remedy="give each tenant a file of its own: SqlEventStore('sqlite:///acme.db', topic_prefix='acme-')",
            place=shown_url(url),
        )
