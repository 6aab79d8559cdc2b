"""PostgreSQL is an event store, in its default schema and in one of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest
import sqlalchemy
from sqlalchemy import Connection

from eventstore import SqlEventStore
from eventstore.testing.conformance import StoreConformance, TransactionConformance

if TYPE_CHECKING:
    from factfold.stack import LocalStack


@pytest.fixture(scope="module", params=[None, "shop"], ids=["default schema", "own schema"])
def postgres_store(postgres: LocalStack, request: pytest.FixtureRequest) -> Iterator[SqlEventStore]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    engine = sqlalchemy.create_engine(postgres.info.postgres.url(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'create database "{name}"')
    engine.dispose()
    with SqlEventStore(postgres.info.postgres.url(name), schema=request.param) as store:
        store.create_tables()
        yield store


class TestPostgres(StoreConformance, TransactionConformance):
    @pytest.fixture
    def store(self, postgres_store: SqlEventStore) -> SqlEventStore:
        return postgres_store

    @pytest.fixture
    def begin(self, postgres_store: SqlEventStore) -> Callable[[], AbstractContextManager[Connection]]:
        return postgres_store.engine.begin
