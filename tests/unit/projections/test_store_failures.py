"""What the views' database reports is a typed error without statement, parameters, or what it quotes of a row."""

from __future__ import annotations

import sqlite3
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pytest
import sqlalchemy as sa

from projections.errors import ProjectionError, TableStoreUnavailable, UnsupportedValue
from projections.stores.copying import _session
from projections.stores.embedded_rows import session
from projections.stores.postgres import PostgresTableStore
from projections.stores.sqlite import SqliteTableStore

SENTINEL = "ann@example.org"
DUPLICATE = f'duplicate key value violates unique constraint "people_pkey"\nDETAIL:  Key (email)=({SENTINEL}) exists.'
INVALID = (
    f'invalid input syntax for type integer: "{SENTINEL}"\nCONTEXT:  COPY people, line 3, column age: "{SENTINEL}"'
)


REPORTED: dict[str, tuple[Any, Any, str, type[ProjectionError]]] = {
    "PostgreSQL, a key": (
        sa.exc.IntegrityError, psycopg.errors.UniqueViolation(DUPLICATE), "people_pkey", TableStoreUnavailable,
    ),
    "PostgreSQL, a value": (
        sa.exc.DataError, psycopg.errors.InvalidTextRepresentation(INVALID), "invalid input syntax", UnsupportedValue,
    ),
    "PostgreSQL, a table": (
        sa.exc.ProgrammingError, psycopg.errors.UndefinedTable('relation "x" does not exist'), 'relation "x"',
        TableStoreUnavailable,
    ),
    "SQLite, a key": (
        sa.exc.IntegrityError, sqlite3.IntegrityError("UNIQUE constraint failed: people.email"), "people.email",
        TableStoreUnavailable,
    ),
    "SQLite, a text": (
        sa.exc.OperationalError, sqlite3.OperationalError(f'near "{SENTINEL}": syntax error'), "syntax error",
        TableStoreUnavailable,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REPORTED)
def test_what_a_database_reports_is_told_without_a_row_s_values(tmp_path: Any, what: str) -> None:
    reported, orig, words, kind = REPORTED[what]
    url = "postgresql+psycopg://db/views"
    store = PostgresTableStore(url) if "Postgre" in what else SqliteTableStore(str(tmp_path / "views.db"))
    statement, parameters = f"INSERT INTO people VALUES ('{SENTINEL}')", {"email": SENTINEL}

    with pytest.raises(kind) as refused, store._reachable():
        raise reported(statement, parameters, orig)

    assert words in refused.value.message
    assert SENTINEL not in str(refused.value)
    assert "INSERT" not in str(refused.value)


def test_an_engine_hides_parameters_where_its_error_is_printed_as_it_is(tmp_path: Any) -> None:
    stores = PostgresTableStore("postgresql+psycopg://db/views"), SqliteTableStore(str(tmp_path / "views.db"))
    assert [store._engine.hide_parameters for store in stores] == [True, True]


def test_rows_that_are_copied_are_refused_by_column_and_without_the_value(monkeypatch: Any) -> None:
    monkeypatch.setattr("projections.stores.copying._pool", raising(adbc.DataError(INVALID, status_code=5)))
    with pytest.raises(UnsupportedValue, match="COPY people, line 3, column age") as refused, _session("uri"):
        pass

    assert SENTINEL not in str(refused.value)


def raising(error: Exception) -> Any:
    def pool(uri: str) -> None:
        raise error

    return pool


def test_rows_that_are_loaded_into_a_file_are_refused_without_the_value(tmp_path: Any) -> None:
    with pytest.raises(TableStoreUnavailable) as refused, session(str(tmp_path / "views.db")) as connection:
        connection.execute(f'SELECT "{SENTINEL}" "{SENTINEL}" "x"')

    assert SENTINEL not in str(refused.value)
