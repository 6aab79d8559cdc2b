"""Tables of a service: those of its event store, its own, and what its store knows of its aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.identifiers import quoted
from cdc.preparing.steps import Step
from cdc.source.catalogue import typed_errors
from eventstore.errors import StoreNotPrepared
from eventstore.shown_urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine, MetaData

    from eventstore import Aggregate, SqlEventStore


class StoreTables(Step):
    """The tables of an event store. An older store is not migrated."""

    name = "store"

    def __init__(self, store: SqlEventStore) -> None:
        self.target, self._store = shown_url(store.engine.url), store

    def look(self) -> str:
        """See `Step`."""
        version = self._store.version()
        if version.installed and not version.is_current:
            raise StoreNotPrepared(
                f"the event store is at version {version.installed}, and this release needs {version.newest}",
                remedy="run factfold store migrate, then repeat the command",
                place=self.target,
            )
        return "" if version.is_current else "the tables of the event store"

    def make(self) -> None:
        """See `Step`."""
        self._store.create_tables()

    def sql(self) -> tuple[str, ...]:
        """See `Step`."""
        return (self._store.migration_sql(),)


class OwnTables(Step):
    """The tables of the service's own models."""

    name = "tables"

    def __init__(self, engine: Engine, tables: MetaData) -> None:
        self.target, self._engine, self._tables = str(engine.url.database), engine, tables

    def look(self) -> str:
        """See `Step`."""
        with typed_errors(self._engine), self._engine.connect() as connection:
            missing = [
                table.fullname
                for table in self._tables.sorted_tables
                if connection.exec_driver_sql("SELECT to_regclass(%s)", (_quoted(table.fullname),)).scalar() is None
            ]
        return ", ".join(missing)

    def make(self) -> None:
        """See `Step`."""
        with typed_errors(self._engine):
            self._tables.create_all(self._engine)


class Categories(Step):
    """The categories and the schemas of aggregates, which name the event topics."""

    name = "aggregates"

    def __init__(self, store: SqlEventStore, aggregates: Sequence[type[Aggregate]], *, partitions: int) -> None:
        self.target = ", ".join(aggregate.category for aggregate in aggregates)
        self._store, self._aggregates, self._partitions = store, aggregates, partitions

    def look(self) -> str:
        """See `Step`."""
        known = {schema.id for schema in self._store.schemas()}
        kinds = [kind.registered for aggregate in self._aggregates for kind in aggregate.event_types.values()]
        missing = [*self._undeclared(), *(kind.name for kind in kinds if kind.id not in known)]
        return ", ".join(dict.fromkeys(missing))

    def make(self) -> None:
        """See `Step`."""
        for category in self._undeclared():
            self._store.declare_category(category, partitions=self._partitions)
        self._store.register(*self._aggregates)

    def _undeclared(self) -> list[str]:
        declared = {category.name for category in self._store.categories()}
        return [one.category for one in self._aggregates if one.category not in declared]


def _quoted(name: str) -> str:
    return ".".join(quoted(part) for part in name.split("."))
