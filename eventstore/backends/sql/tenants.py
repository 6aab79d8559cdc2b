"""A tenant is a store of its own: a schema in the shared database, and topics that no other tenant has.

The schema of `acme` is `tenant_acme`, the topic of its orders `acme-order`. A name has no dash and a category none, so
no two tenants and no store without tenants meet in a topic; neither do branches, which have a dot.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from sqlalchemy import URL, Engine, inspect

from eventstore.backends.sql.database import dialect_of
from eventstore.backends.sql.engines import url_of
from eventstore.backends.sql.models import MIGRATIONS, Tables
from eventstore.backends.sql.store import SqlEventStore
from eventstore.backends.sql.transactions import typed_failures
from eventstore.backends.sql.ways import WAYS
from eventstore.erasure import KeyStore, MasterKeys
from eventstore.errors import UnsupportedBackend
from eventstore.identifiers import check_tenant
from eventstore.schema_registry import SchemaRegistry
from eventstore.shown_urls import shown_url

_SCHEMA: Final = "tenant_"


def tenant_schema(tenant: str) -> str:
    """Return the database schema of a tenant; InvalidIdentifier."""
    return f"{_SCHEMA}{check_tenant(tenant)}"


def tenant_store(
    database: str | URL | Engine,
    tenant: str,
    *,
    source: str | None = None,
    registry: SchemaRegistry | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    new_id: Callable[[], UUID] | None = None,
    keys: KeyStore | MasterKeys | None = None,
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
    return SqlEventStore(
        database,
        schema=schema,
        source=source or f"/{tenant}",
        topic_prefix=f"{tenant}-",
        registry=registry,
        clock=clock,
        new_id=new_id,
        keys=keys,
    )


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
