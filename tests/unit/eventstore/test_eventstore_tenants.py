"""Names of tenants, and what they become, before any database is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine

from eventstore import SqlEventStore, tenant_store, tenants
from eventstore.backends.sql.tenants import tenant_schema
from eventstore.errors import InvalidIdentifier, UnsupportedBackend
from eventstore.identifiers import MAX_TENANT_LENGTH
from tests.rows import each_row

URL = "postgresql+psycopg://shop@127.0.0.1:1/shop"


@each_row(
    "tenant",
    [
        "", " ", "Acme", "1acme", "_acme", "acme-order", "acme.order", "acme order", "ácme", "acme\n", "acme\0", "%",
        "%s", "{0}", 'a"; drop schema public cascade; --', "a'; select 1; --", "../acme", "a/b", "a\\b", "a;b", "a$b",
        "аcme", "x" * (MAX_TENANT_LENGTH + 1),
    ],
)  # fmt: skip
def test_a_name_that_is_not_a_lower_case_word_is_refused(tenant: str) -> None:
    with pytest.raises(InvalidIdentifier, match="is not a valid name"):
        tenant_store(URL, tenant)


def test_the_longest_name_is_a_schema_that_postgresql_keeps_whole() -> None:
    assert len(tenant_schema("x" * MAX_TENANT_LENGTH)) < 63


def test_a_schema_that_postgresql_would_cut_or_keeps_for_itself_is_refused() -> None:
    for schema in ("x" * 64, "pg_shop"):
        with pytest.raises(InvalidIdentifier):
            SqlEventStore(URL, schema=schema)


def test_a_store_of_a_file_has_no_schemas_and_no_tenants(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(UnsupportedBackend, match="no schemas"):
        SqlEventStore(url, schema="shop")
    with pytest.raises(UnsupportedBackend, match="tenants apart"):
        tenant_store(url, "acme")
    engine = create_engine(url)
    with pytest.raises(UnsupportedBackend, match="tenants apart"):
        tenants(engine)
    engine.dispose()
