"""A captured database whose rows are compared with the states of a group, for the tests of comparisons."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cdc import PostgresSource, compare_tables
from cdc.comparing.report import TableComparison
from eventstore.settings import Settings
from projections import ComparedGroup, Environment, ProjectionGroup, Table, view
from projections.spark.reading.kafka_source import KafkaLog
from projections.spark.session import small_batch_session
from projections.stores.postgres import PostgresTableStore
from tests.integration.conftest import Captured


@dataclasses.dataclass
class Shop:
    """A captured database, the views' database, and the group whose states are compared."""

    database: Captured
    source: PostgresSource
    settings: Settings
    environment: Environment
    group: ProjectionGroup

    def compare(self, **options: Any) -> tuple[TableComparison, ...]:
        """Compare every captured table of the group."""
        with ComparedGroup(self.views_url, self.group) as group:
            return compare_tables(self.database.engine, self.source, group.tables, self.settings, **options)

    @property
    def views_url(self) -> str:
        """The URL of the views' database."""
        return self.environment.store._engine.url.render_as_string(hide_password=False)

    def in_state(self, statement: str) -> None:
        """Change the state by hand; `{0}` is the schema of the generation that serves."""
        run = self.environment.store.serving_state(self.group.name).run
        with self.environment.store.transaction() as connection:
            connection.exec_driver_sql(statement.format(f"factfold_{run.group}_{run.generation}"))

    def state_rows(self, query: str) -> list[Any]:
        """The first column of the rows that the state shows; `{0}` is the schema of the generation that serves."""
        run = self.environment.store.serving_state(self.group.name).run
        shown = f"SELECT * FROM ({query.format(f'factfold_{run.group}_{run.generation}')}) AS t"
        with self.environment.store.looking() as connection:
            return list(connection.exec_driver_sql(shown).scalars())


def repairable_source(database: Captured, *tables: str, **changes: Any) -> PostgresSource:
    """A source whose rows can be read again by signal, and which passes over what a comparison is to find."""
    return database.source(
        tables=tuple(f"public.{table}" for table in tables),
        signal_table="public.signals",
        notifications_topic=f"{database.name}.notifications",
        truncates="skip",
        **changes,
    )


def group_of(name: str, **tables: Table) -> ProjectionGroup:
    """A group with a view for each table, of its key alone."""

    def made(table_name: str, table: Table) -> Any:
        def rows(*given: Any, **named: Any) -> Any:
            (frame,) = (*given, *named.values())
            return frame.select(*table.key)

        rows.__name__ = f"{table_name}_of_{name}"
        parameter = inspect.Parameter(table_name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        rows.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
        return view(key=table.key, tables={table_name: table})(rows)

    return ProjectionGroup(name, [made(table_name, table) for table_name, table in tables.items()])


@contextmanager
def opened_views(spark: Any, settings: Settings, database: Captured) -> Iterator[Environment]:
    """Keep views in a database, for all tests of a module."""
    store = PostgresTableStore(database.engine.url.render_as_string(hide_password=False))
    store.prepare()
    yield Environment(spark, small_batch_session(spark), store, KafkaLog(settings))
    store.close()
