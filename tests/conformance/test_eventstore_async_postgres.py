"""PostgreSQL is an event store on asyncio, too, by the same driver."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
import sqlalchemy

from eventstore.testing.conformance import StoreConformance
from tests.conformance.on_a_loop import on_a_loop

if TYPE_CHECKING:
    from factfold.stack import LocalStack


@pytest.fixture(scope="module", params=[None, "shop"], ids=["default schema", "own schema"])
def postgres_store(postgres: LocalStack, request: pytest.FixtureRequest):
    name = f"test_{uuid.uuid4().hex[:12]}"
    engine = sqlalchemy.create_engine(postgres.info.postgres.url(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'create database "{name}"')
    engine.dispose()
    with on_a_loop(postgres.info.postgres.url(name), schema=request.param) as store:
        yield store


class TestAsyncPostgres(StoreConformance):
    @pytest.fixture
    def store(self, postgres_store):
        return postgres_store
