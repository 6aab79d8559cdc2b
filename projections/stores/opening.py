"""Which table store a URL means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import sqlalchemy as sa

from eventstore.shown_urls import shown_url
from projections.errors import TableStoreUnavailable
from projections.stores.sql import TableStore

_WRITE: Final = "write postgresql+psycopg://user@host/database or sqlite:///shop.db"
_DRIVERS: Final = ("postgresql", "postgresql+psycopg", "sqlite", "sqlite+pysqlite")


def sqlite_path(url: str) -> str | None:
    """The file that a SQLite URL names, None for another store's URL; raises TableStoreUnavailable."""
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database or parsed.database == ":memory:":
        raise TableStoreUnavailable(
            "a SQLite database in memory is out of the reach of Spark's workers",
            remedy="name a file, for example sqlite:///shop.db",
        )
    return parsed.database


def open_table_store(url: str) -> TableStore:
    """The store of a database's URL (``postgresql+psycopg://…`` or ``sqlite:///…``); nothing is asked of it yet."""
    if path := sqlite_path(url):
        from projections.stores.sqlite import SqliteTableStore  # SQLAlchemy is loaded when it is first used

        return SqliteTableStore(path)
    from projections.stores.postgres import PostgresTableStore  # needs the extra postgres

    return PostgresTableStore(url)


@contextmanager
def opened(views: str | TableStore) -> Iterator[TableStore]:
    """The store of a URL, closed at the end, or the one that is given, which stays open."""
    if isinstance(views, TableStore):
        yield views
        return
    with closing(open_table_store(views)) as store:
        yield store


def _parsed(url: str) -> sa.URL:
    if url.startswith("delta:"):
        raise TableStoreUnavailable(
            "state and views are stored in a database, and Delta Lake is an output of views",
            remedy=f"{_WRITE}, and declare each view with the path of its table: lake='/lake/orders'",
            place=shown_url(url),
        )
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # without it: a password may be in its text
        raise TableStoreUnavailable("the URL of the views' database cannot be read", remedy=_WRITE) from None
    if parsed.drivername not in _DRIVERS:
        raise TableStoreUnavailable(f"views cannot be stored in {parsed.drivername!r}", remedy=_WRITE)
    return parsed
