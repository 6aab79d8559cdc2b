"""What opens a database is shown by no error: the password of its URL, and the secrets among its parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import make_url

import cdc
import eventstore
import factfold
import projections
from cdc.embedded import _require_sqlite
from eventstore import SqlEventStore
from eventstore.backends.sql import dialect
from eventstore.backends.sql.database import dialect_of
from eventstore.backends.sql.dialect import unavailable
from eventstore.backends.sql.engines import _wrong_driver
from eventstore.backends.sql.outbox import Outbox
from eventstore.backends.sql.store import tenants
from eventstore.backends.sql.ways import supported
from eventstore.errors import FactfoldError
from eventstore.shown_urls import shown_url
from projections.stores.opening import open_table_store
from projections.stores.postgres import PostgresTableStore
from tests.rows import each_row

SENTINEL = "s3cr3t"
PARAMETERS = f"password={SENTINEL}&sslpassword={SENTINEL}&connect_timeout=1"
URL = f"postgresql+psycopg://ann:{SENTINEL}@127.0.0.1:1/shop?{PARAMETERS}"

SHOWN: dict[str, tuple[str, str]] = {
    "nothing to hide": ("postgresql://db/shop?sslmode=require", "postgresql://db/shop?sslmode=require"),
    "the password": ("postgresql://ann:s3cr3t@db/shop", "postgresql://ann:***@db/shop"),
    "a password that is not quoted": ("postgresql://ann:s3@cr3t/?@db/shop", "postgresql://ann:***@db/shop"),
    "a password without a user": ("postgresql://:s3cr3t@db/shop", "postgresql://:***@db/shop"),
    **{
        f"parameter {name}": (f"postgresql://db/shop?a=1&{name}=s3cr3t&b=2", f"postgresql://db/shop?a=1&{name}=***&b=2")
        for name in ("password", "PASSWORD", "sslpassword", "passwd", "pwd", "token", "access_token", "client_secret",
                     "secret%5Fkey",
                     "api_key", "apikey", "access-key", "sig", "credentials", "passphrase", "pass%77ord")
    },
    "paths are no secrets": ("postgresql://db/shop?sslkey=/k&passfile=/p", "postgresql://db/shop?sslkey=/k&passfile=/p"),
    "a lake": ("delta:s3a://key:s3cr3t@lake/views?token=s3cr3t", "delta:s3a://key:***@lake/views?token=***"),
    "a container": ("delta:abfss://views@lake.net/x?sig=s3cr3t", "delta:abfss://views@lake.net/x?sig=***"),
    "a file": ("sqlite:////data/shop.db", "sqlite:////data/shop.db"),
    "a folder": ("delta:/lake/views", "delta:/lake/views"),
}  # fmt: skip


@each_row("what", SHOWN)
def test_a_url_is_shown_without_its_secrets(what: str) -> None:
    url, shown = SHOWN[what]
    assert shown_url(url) == shown


def engine(name: str) -> Any:
    return SimpleNamespace(url=make_url(URL), driver="other", dialect=SimpleNamespace(name=name))


def unreachable_store() -> None:
    with SqlEventStore(URL) as store:
        store.version()


def unreachable_views() -> None:
    with PostgresTableStore(URL).transaction():
        pass


def raised(error: FactfoldError) -> None:
    raise error


PLACES: dict[str, Callable[[], Any]] = {
    "a store that does not answer": unreachable_store,
    "a store's driver": lambda: raised(_wrong_driver(make_url(URL), "asynchronous", "another")),
    "a store's dialect": lambda: dialect_of(engine("mysql"), None),  # type: ignore[arg-type]
    "a lock": lambda: raised(dialect.refused("locked", "wait", _driver_error(), shown_url(make_url(URL)))),
    "tenants": lambda: tenants(_sqlite()),
    "an inbox": lambda: supported(engine("mysql"), "the inbox"),
    "a relay": lambda: Outbox(_sqlite(), None),  # type: ignore[arg-type]
    "a handler's database": lambda: raised(unavailable(engine("postgresql"), ValueError("gone"))),
    "triggers": lambda: _require_sqlite(engine("postgresql")),
    "views that do not answer": unreachable_views,
    "views in a lake": lambda: open_table_store(f"delta:s3a://key:{SENTINEL}@lake/views?token={SENTINEL}"),
}


def _sqlite() -> Any:
    from sqlalchemy import create_engine

    return create_engine(f"sqlite:///file::memory:?uri=true&password={SENTINEL}")


def _driver_error() -> Any:
    return SimpleNamespace(orig=ValueError("locked"))


@each_row("what", PLACES)
def test_no_error_that_names_a_database_shows_what_opens_it(what: str) -> None:
    with pytest.raises(FactfoldError) as refused:
        PLACES[what]()

    assert refused.value.place is not None
    assert SENTINEL not in str(refused.value)


def test_a_store_of_views_is_printed_without_what_opens_it() -> None:
    store = PostgresTableStore(URL)
    assert SENTINEL not in repr(store)
    assert "sslpassword=***" in store.place


def test_nothing_else_of_ours_makes_a_text_of_a_url() -> None:
    packages = [Path(package.__file__).parent for package in (eventstore, cdc, projections, factfold)]
    sources = [path for package in packages for path in package.rglob("*.py") if path.name != "shown_urls.py"]
    assert [path.name for path in sources if "hide_password=True" in path.read_text()] == []
