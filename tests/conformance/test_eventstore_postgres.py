"""PostgreSQL is an event store, in its default schema and in one of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import sqlalchemy

from eventstore import SqlEventStore
from eventstore.testing.conformance import StoreConformance

if TYPE_CHECKING:
    from factfold.stack import LocalStack


@pytest.fixture(scope="module", params=[None, "shop"], ids=["default schema", "own schema"])
def postgres_store(stack: LocalStack, request: pytest.FixtureRequest) -> Iterator[SqlEventStore]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    engine = sqlalchemy.create_engine(stack.info.postgres.url(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'create database "{name}"')
    engine.dispose()
    with SqlEventStore(stack.info.postgres.url(name), schema=request.param) as store:
        store.create_tables()
        yield store


class TestPostgres(StoreConformance):
    @pytest.fixture
    def store(self, postgres_store: SqlEventStore) -> SqlEventStore:
        return postgres_store
