"""Which table store a URL means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import sqlalchemy as sa

from eventstore.shown_urls import shown_url
from projections.errors import TableStoreUnavailable
from projections.stores.sql import SqlTableStore

_WRITE: Final = "write postgresql+psycopg://user@host/database, sqlite:///shop.db, or delta:/lake/views"
_DRIVERS: Final = ("postgresql", "postgresql+psycopg", "sqlite", "sqlite+pysqlite")


def delta_root(url: str) -> str | None:
    """The path or Hadoop URI that `delta:` stands before, None for the URL of a database."""
    return url.removeprefix("delta:") if url.startswith("delta:") else None


def sqlite_path(url: str) -> str | None:
    """The file that a SQLite URL names, None for another store's URL; raises TableStoreUnavailable."""
    if delta_root(url) is not None:
        return None
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database or parsed.database == ":memory:":
        raise TableStoreUnavailable(
            "a SQLite database in memory is out of the reach of Spark's workers",
            remedy="name a file, for example sqlite:///shop.db",
        )
    return parsed.database


def open_table_store(url: str) -> SqlTableStore:
    """The store of a database's URL (``postgresql+psycopg://…`` or ``sqlite:///…``); nothing is asked of it yet.

    TableStoreUnavailable for Delta Lake, which takes a Spark to be read.
    """
    if delta_root(url) is not None:
        raise TableStoreUnavailable(
            "views in Delta Lake are read by Spark, and there is none here",
            remedy="ask for them by Spark (read_view), or keep the group in PostgreSQL",
            place=shown_url(url),
        )
    if path := sqlite_path(url):
        from projections.stores.sqlite import SqliteTableStore  # SQLAlchemy is loaded when it is first used

        return SqliteTableStore(path)
    from projections.stores.postgres import PostgresTableStore  # needs the extra postgres

    return PostgresTableStore(url)


@contextmanager
def opened(views: str | SqlTableStore) -> Iterator[SqlTableStore]:
    """The store of a URL, closed at the end, or the one that is given, which stays open."""
    if isinstance(views, SqlTableStore):
        yield views
        return
    with closing(open_table_store(views)) as store:
        yield store


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # without it: a password may be in its text
        raise TableStoreUnavailable("the URL of the views' database cannot be read", remedy=_WRITE) from None
    if parsed.drivername not in _DRIVERS:
        raise TableStoreUnavailable(f"views cannot be stored in {parsed.drivername!r}", remedy=_WRITE)
    return parsed
