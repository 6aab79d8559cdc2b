"""The two small tables next to the events: schemas and categories, written once and cached.

Aggregate snapshots as rows: one a stream, replaced by newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import Connection, Table, delete, or_, select

from eventstore.backends.batch import Draft, require_partitions, rfc3339
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.models import Tables
from eventstore.backends.sql.values import bindable
from eventstore.backends.sql.ways import upsert
from eventstore.event_types import EventType
from eventstore.fields.serialization import schema_id_of
from eventstore.identifiers import check_category, check_topic
from eventstore.schema_check import require_readable
from eventstore.schema_registry import RegisteredSchema, SchemaRegistry, check_same, fingerprint, unknown_schema
from eventstore.snapshots import AggregateSnapshot
from eventstore.store import Category
from eventstore.topics import DEFAULT_PARTITIONS, SCHEMAS_TOPIC, topic_of_category


class AssignedTypes:
    """Asks a registry once for each schema: a schema in the store's own table is not asked for again.

    A registry that is away therefore stops no append of an event type that was appended before.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._types: dict[int, EventType] = {}

    def of(self, kinds: Sequence[EventType], stored: Callable[[], Iterable[RegisteredSchema]]) -> list[EventType]:
        """Return the types in their order; ``stored`` returns every schema of the store. The registry's errors."""
        new = {kind.schema_id: kind for kind in kinds if kind.schema_id not in self._types}
        if new:
            ids = {fingerprint(s.schema): s for s in stored() if s.registry == self._registry.address}
            asked = [kind.registered for own_id, kind in new.items() if own_id not in ids]
            ids.update(zip((one.id for one in asked), self._registry.register(asked), strict=True))
            self._types.update((own_id, kind.under(ids[own_id])) for own_id, kind in new.items())
        return [self._types[kind.schema_id] for kind in kinds]


SCHEMA_EVENT_TYPE = "factfold.schema_registered"


class SqlCatalogue:
    """Schemas by id and categories by name; ``registry`` gives new schemas their ids, where they are no fingerprints.

    Only what was committed in a transaction of our own is remembered: a caller's may be rolled back.
    """

    def __init__(
        self,
        database: Database,
        *,
        source: str,
        topic_prefix: str | None = None,
        registry: SchemaRegistry | None = None,
    ) -> None:
        self._tables = database.tables
        self._read, self._write = database.statement, database.writing
        self._source = source
        self._topic_prefix = topic_prefix
        self._assigned = None if registry is None else AssignedTypes(registry)
        self._schemas: dict[int, RegisteredSchema] = {}
        self._registered: set[int] = set()
        self._readable: set[int] = set()
        self._categories: dict[str, Category] = {}

    def registered(self, draft: Draft, *, connection: Connection | None = None) -> Draft:
        """Register the schemas of a draft's events, and return it with the ids these are to be framed by."""
        kinds = self.event_types(draft.types.values(), connection=connection)
        if self._assigned is None:
            return draft
        return replace(draft, types=dict(zip(draft.types, kinds, strict=True)))

    def event_types(self, kinds: Iterable[EventType], *, connection: Connection | None = None) -> list[EventType]:
        """Register the schemas of event types, and return these under the ids they have here.

        SchemaIncompatible where one that is new here could not read what is; the errors of `register`; of the registry,
        where it has to be asked.
        """
        types = list(kinds)
        self._require_readable(types, connection)
        if self._assigned is not None:
            types = self._assigned.of(types, lambda: self.all_schemas(connection=connection))
        self.register((kind.registered for kind in types), connection=connection)
        return types

    def _require_readable(self, kinds: Iterable[EventType], connection: Connection | None) -> None:
        """Compare types whose schemas are new to this process, and to the store, with the store's schemas."""
        new = {kind.schema_id: kind for kind in kinds if kind.schema_id not in self._readable}
        if not new:
            return
        table = self._tables.schemas
        with self._read(connection) as reading:
            query = select(table.c.schema_id).where(table.c.schema_id.in_(new))
            stored = set(reading.execute(query).scalars())
            unknown = [kind for schema_id, kind in new.items() if schema_id not in stored]
            require_readable(unknown, self.all_schemas(connection=reading) if unknown else ())
        self._readable.update(new)

    def register(self, schemas: Iterable[RegisteredSchema], *, connection: Connection | None = None) -> None:
        """Keep schemas for ever under their ids; SchemaError where an id already has another schema."""
        new = [schema for schema in schemas if schema.id not in self._registered]
        if not new:
            return
        if connection is not None:
            self._keep(connection, new)
            return
        with self._write() as own:
            self._keep(own, new)
        self._registered.update(schema.id for schema in new)

    def schema(self, schema_id: int, *, connection: Connection | None = None) -> RegisteredSchema:
        """Return one schema; UnknownSchema where the id was never registered."""
        if schema_id not in self._schemas and connection is not None:
            return self._stored(connection, schema_id)
        if schema_id not in self._schemas:
            with self._read() as connection:
                self._schemas[schema_id] = self._stored(connection, schema_id)
        return self._schemas[schema_id]

    def categories(self, names: Iterable[str], *, connection: Connection | None = None) -> Mapping[str, Category]:
        """Return categories, creating those that are new with the default partition count."""
        requested = list(names)
        missing = [name for name in requested if name not in self._categories]
        if connection is not None and missing:
            created = {name: self._ensure(connection, name, DEFAULT_PARTITIONS) for name in missing}
            return {**self._categories, **created}
        for name in missing:
            self.declare(name, partitions=DEFAULT_PARTITIONS, fixed=False)
        return self._categories

    def declare(self, name: str, *, partitions: int, topic: str | None = None, fixed: bool = True) -> Category:
        """Create a category if it is new; InvalidArgument where it exists with another partition count."""
        with self._write() as connection:
            category = self._ensure(connection, name, partitions, topic=topic)
        if fixed:
            require_partitions(category, partitions)
        self._categories[name] = category
        return category

    def adopt(self, offered: Category) -> Category:
        """Create a category as another store has it, if it is new, under the topic of `topic_of`."""
        return self.declare(offered.name, partitions=offered.partitions, topic=self.topic_of(offered), fixed=False)

    def topic_of(self, offered: Category) -> str:
        """Return the topic that a category of another store gets here: its own; ours, where ours have a prefix."""
        return offered.topic if offered.topic.startswith(self._topic_prefix or "") else self.own_topic(offered.name)

    def own_topic(self, name: str) -> str:
        """Return the topic of a new category that is given none."""
        if self._topic_prefix is None:
            return topic_of_category(name, source=self._source)
        return f"{self._topic_prefix}{name}"

    def all_categories(self) -> list[Category]:
        """Return every category, by name."""
        table = self._tables.categories
        with self._read() as connection:
            return [Category(*row) for row in connection.execute(select(table).order_by(table.c.category))]

    def all_schemas(self, *, connection: Connection | None = None) -> list[RegisteredSchema]:
        """Return every schema, by id."""
        table = self._tables.schemas
        with self._read(connection) as reading:
            payloads = reading.execute(select(table.c.payload).order_by(table.c.schema_id)).scalars()
            return [RegisteredSchema.from_json(payload) for payload in payloads]

    def _keep(self, connection: Connection, schemas: list[RegisteredSchema]) -> None:
        rows = [self._row(schema) for schema in schemas]
        _insert_new(connection, self._tables.schemas, rows)
        for schema in schemas:
            check_same(self._stored(connection, schema.id), schema)

    def _row(self, schema: RegisteredSchema) -> dict[str, object]:
        now = datetime.now(UTC)
        return {
            "schema_id": schema.id,
            "id": uuid4(),
            "type": SCHEMA_EVENT_TYPE,
            "payload": schema.to_json(),
            "message_key": str(schema.id),
            "partition": 0,
            "topic": SCHEMAS_TOPIC,
            "ce_source": self._source,
            "time": now,
            "ce_time": rfc3339(now),
        }

    def _stored(self, connection: Connection, schema_id: int) -> RegisteredSchema:
        table = self._tables.schemas
        query = select(table.c.payload).where(table.c.schema_id == schema_id)
        payload = connection.execute(query).scalar_one_or_none()
        if payload is None:
            raise unknown_schema(schema_id, f"table {table.fullname}")
        return RegisteredSchema.from_json(payload)

    def _ensure(self, connection: Connection, name: str, partitions: int, *, topic: str | None = None) -> Category:
        table = self._tables.categories
        stored = select(table).where(table.c.category == check_category(name))
        if (existing := connection.execute(stored).one_or_none()) is not None:
            return Category(*existing)  # even if this source now gives it another topic
        chosen = check_topic(self.own_topic(name) if topic is None else topic)
        row = {"category": name, "topic": chosen, "partitions": partitions, "generation": 1}
        _insert_new(connection, table, [row])
        return Category(*connection.execute(stored).one())


def _insert_new(connection: Connection, table: Table, rows: list[dict[str, object]]) -> None:
    """Insert rows whose key is new."""
    connection.execute(upsert(connection, table).on_conflict_do_nothing(), rows)


class StoredSnapshots:
    """The table `snapshots`; a reader of it needs no fence, the stream itself says what came after."""

    tables: Tables
    _database: Database

    def snapshot(self, stream: str) -> AggregateSnapshot | None:
        """Return a stream's aggregate snapshot, None without one."""
        columns = self.tables.snapshots.c
        query = select(columns.stream, columns.version, columns.payload).where(columns.stream == stream)
        with self._database.statement() as connection:
            row = connection.execute(query).first()
        return None if row is None else AggregateSnapshot(row.stream, row.version, row.payload)

    def _drop_snapshots(self, streams: Sequence[str]) -> int:
        table = self.tables.snapshots
        with self._database.writing() as connection:
            self._database.dialect.overwrite_deleted(connection)
            parts = [delete(table).where(table.c.stream.in_(part)) for part in bindable(streams)]
            return sum(connection.execute(part).rowcount for part in parts)

    def save_snapshot(self, snapshot: AggregateSnapshot) -> None:
        """Store an aggregate snapshot, unless a newer one of the same shape exists."""
        # One of another shape is replaced: two releases of a service may run side by side.
        values = {
            "stream": snapshot.stream,
            "version": snapshot.version,
            "shape": schema_id_of(snapshot.payload),
            "payload": snapshot.payload,
        }
        columns = self.tables.snapshots.c
        with self._database.writing() as connection:
            statement = upsert(connection, self.tables.snapshots).values(values)
            new = statement.excluded
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["stream"],
                    set_={name: new[name] for name in values if name != "stream"},
                    where=or_(columns.version < new.version, columns.shape != new.shape),
                )
            )
