"""The categories and schemas of a store in memory: what services declare before their first event."""

from __future__ import annotations

from collections.abc import Collection

from eventstore.backends.batch import require_partitions
from eventstore.compatibility import require_readable
from eventstore.event_types import EventType
from eventstore.identifiers import check_category, check_topic
from eventstore.schema_registry import RegisteredSchema, check_same, unknown_schema
from eventstore.store import Category
from eventstore.topics import DEFAULT_PARTITIONS, topic_of_category


class MemoryCatalogue:
    """Categories by name and schemas by id; safe for threads, as its dictionaries are."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._categories: dict[str, Category] = {}
        self._schemas: dict[int, RegisteredSchema] = {}

    def keep(self, kinds: Collection[EventType]) -> None:
        """Keep the schemas of event types; SchemaConflict, SchemaIncompatible."""
        require_readable([kind for kind in kinds if kind.schema_id not in self._schemas], self._schemas.values())
        for kind in kinds:
            if (known := self._schemas.setdefault(kind.schema_id, kind.registered)) is not kind.registered:
                check_same(known, kind.registered)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema; UnknownSchema."""
        if schema_id not in self._schemas:
            raise unknown_schema(schema_id, "memory")
        return self._schemas[schema_id]

    def schemas(self) -> list[RegisteredSchema]:
        """Return every schema, by id."""
        return [self._schemas[schema_id] for schema_id in sorted(self._schemas)]

    def ensure(self, name: str, *, partitions: int = DEFAULT_PARTITIONS, topic: str | None = None) -> Category:
        """Return a category, a new one where there is none; InvalidIdentifier."""
        if (known := self._categories.get(check_category(name))) is not None:
            return known
        chosen = topic or topic_of_category(name, source=self._source)
        offered = Category(name, check_topic(chosen), partitions=partitions, generation=1)
        return self._categories.setdefault(name, offered)

    def declare(self, name: str, *, partitions: int, topic: str | None) -> Category:
        """Return a category of so many partitions; PartitionsFixed where it has others."""
        return require_partitions(self.ensure(name, partitions=partitions, topic=topic), partitions)

    def categories(self) -> list[Category]:
        """Return every category, by name."""
        return [self._categories[name] for name in sorted(self._categories)]
