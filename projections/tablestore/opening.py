"""Which table store a URL means."""

from __future__ import annotations

import sqlalchemy as sa

from projections.errors import TableStoreUnavailable
from projections.tablestore.sql import SqlTableStore


def sqlite_path(url: str) -> str | None:
    """The file that a SQLite URL names, None for another database's URL; raises TableStoreUnavailable."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise TableStoreUnavailable(
            "the URL of the views' database cannot be read",
            remedy="write postgresql+psycopg://user@host/database, or sqlite:///shop.db",
        ) from error
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database or parsed.database == ":memory:":
        raise TableStoreUnavailable(
            "a SQLite database in memory is out of the reach of Spark's workers",
            remedy="name a file, for example sqlite:///shop.db",
        )
    return parsed.database


def open_table_store(url: str) -> SqlTableStore:
    """The store of a URL (``postgresql+psycopg://…`` or ``sqlite:///…``); nothing is asked of it yet."""
    if path := sqlite_path(url):
        from projections.tablestore.sqlite import SqliteTableStore

        return SqliteTableStore(path)
    from projections.tablestore.postgres import PostgresTableStore

    return PostgresTableStore(url)
