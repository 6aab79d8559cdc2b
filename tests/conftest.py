"""Fixtures shared by all tests: one local stack a session, and fresh databases in it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from factfold.stack import LocalStack


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """PostgreSQL, Kafka and Kafka Connect, started once and removed with their data at the end."""
    from factfold.stack import LocalStack

    with LocalStack(f"tests-{os.getpid()}", ephemeral=True) as running:
        yield running


@pytest.fixture
def database(stack: LocalStack) -> Callable[[], str]:
    """A function that creates an empty database and returns its SQLAlchemy URL (psycopg, superuser)."""
    import sqlalchemy

    def create() -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        engine = sqlalchemy.create_engine(stack.info.postgres.url(), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
        engine.dispose()
        return stack.info.postgres.url(name)

    return create
