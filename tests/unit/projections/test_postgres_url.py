"""What a PostgreSQL URL says reaches the connections of both drivers: SQLAlchemy's, and ADBC's for rows."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import psycopg.conninfo
import pytest

from eventstore.backends.sql.engines import engine_for
from factfold.cli.cdc.connectors import _created as database_of_a_source
from projections.stores.postgres import PostgresTableStore

SAID = {
    "u:p%40%2F@h/d?sslmode=verify-full&sslrootcert=/etc/the%20root.pem": {
        "user": "u", "password": "p@/", "host": "h", "dbname": "d", "sslmode": "verify-full",
        "sslrootcert": "/etc/the root.pem",
    },
    "u:p@[::1]:5433/d": {"host": "::1", "port": "5433"},
    "u@/d?host=/var/run/postgresql": {"user": "u", "host": "/var/run/postgresql"},
    "u@/d?host=a:1&host=b:2&target_session_attrs=primary": {
        "host": "a,b", "port": "1,2", "target_session_attrs": "primary",
    },
    "u@h/d?options=-c%20search_path%3Dours&application_name=views": {
        "options": "-c search_path=ours", "application_name": "views",
    },
}  # fmt: skip


@pytest.mark.parametrize("url", SAID)
def test_everything_that_the_url_says_is_in_the_uri_of_the_rows_driver(url):
    with closing(PostgresTableStore(f"postgresql+psycopg://{url}")) as store:
        uri = store.uri
    told = psycopg.conninfo.conninfo_to_dict(uri)  # as libpq reads it
    assert {name: str(told[name]) for name in SAID[url]} == SAID[url]
    assert set(parse_qs(urlsplit(uri).query)) == set(told)


def test_what_is_psycopg_s_own_in_the_url_is_not_told_to_libpq():
    with closing(PostgresTableStore("postgresql+psycopg://u@h/d?prepare_threshold=none&sslmode=require")) as store:
        told = psycopg.conninfo.conninfo_to_dict(store.uri)  # which refuses an option that libpq does not know
    assert told == {"user": "u", "host": "h", "dbname": "d", "sslmode": "require"}


@pytest.mark.parametrize(("said", "meant"), [("none", None), ("0", 0), ("7", 7)])
def test_how_often_a_statement_is_sent_before_it_is_prepared_is_said_in_the_url(monkeypatch, said, meant):
    seen = {}
    monkeypatch.setattr(psycopg, "connect", lambda **options: seen.update(options) or 1 / 0)
    with closing(PostgresTableStore(f"postgresql+psycopg://u@h/d?prepare_threshold={said}")) as store:
        with pytest.raises(ZeroDivisionError), store.looking():
            pass
    assert seen["prepare_threshold"] == meant


@pytest.mark.parametrize("opened", [engine_for, database_of_a_source], ids=["stores", "sources of connectors"])
def test_every_other_database_of_a_url_is_opened_alike(monkeypatch, opened):
    seen = {}
    monkeypatch.setattr(psycopg, "connect", lambda **options: seen.update(options) or 1 / 0)
    engine = opened("postgresql+psycopg://u@h/d?prepare_threshold=none")
    with pytest.raises(ZeroDivisionError):
        engine.connect()
    assert seen["prepare_threshold"] is None
