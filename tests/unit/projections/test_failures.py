"""Errors of queries and databases: typed, with a remedy, and without a value."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pytest
import sqlalchemy as sa
from pyspark.errors import PySparkException

import projections
from eventstore.errors import RecordsUnreadable
from projections.declaring.views import View
from projections.errors import (
    CodeFailed,
    ProjectionError,
    RecordNotUnpacked,
    SparkFailed,
    TableStoreUnavailable,
    UnsupportedValue,
)
from projections.lifecycle.building import Builder
from projections.logs.offsets import OffsetRange
from projections.spark.failures import described, translate
from projections.spark.live import incremental
from projections.spark.live.incremental import LiveBatches
from projections.spark.reading import kafka_source
from projections.stores.arrow import session
from projections.stores.copying import _session
from projections.stores.postgres import PostgresTableStore
from projections.stores.sqlite import SqliteTableStore

PERSONAL = ("ann@example.org", "line2", "4711.25", "O'Hara")
NUMBER = (
    '[CAST_INVALID_INPUT] The value \'ann@example.org\\\'s "x"\nline2\' of the type "STRING" cannot be cast to "INT"'
    " because it is malformed. Correct the value as per the syntax, or change its target type. Use `try_cast` to"
    " tolerate malformed input and return NULL instead. SQLSTATE: 22018\n"
)
OF_FRAME = '== DataFrame ==\n"cast" was called from\n/shop/views.py:17\n'
OF_SQL = "== SQL (line 2, position 3) ==\n  CAST(name AS INT) AS x FROM t\n  ^^^^^^^^^^^^^^^^^\n"
OF_VIEW = "== SQL of VIEW t(line 1, position 8) ==\nSELECT CAST(name AS INT)\n       ^^^^^^^^^^^^^^^^^\n"
PACKAGES = Path(projections.__file__).parents[1]


def python(raised: str, *, path: str = "/shop/orders.py") -> str:
    return (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "/venv/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 3622, in main\n'
        "    process()\n    ~~~~~~~^^\n"
        f'  File "{PACKAGES}/projections/spark/events/folds.py", line 70, in fold\n    state = evolve(state, event)\n'
        f'  File "{path}", line 12, in evolve\n    return int(event.name)\n'
        f'  File "{PACKAGES}/eventstore/aggregates/aggregate.py", line 7, in apply\n    pass\n'
        f"{raised}\n"
    )


CHAINED = python("KeyError: 'ann@example.org'") + (
    "\nDuring handling of the above exception, another exception occurred:\n\n"
    + python("shop.errors.NoSuchPerson: ann@example.org is none\nValueError: line2")
)
# The message; what the error tells; the line and the expression.
TOLD: dict[str, tuple[str, tuple[str, ...], str]] = {
    "a cast in a view's function": (
        NUMBER + OF_FRAME, ("[CAST_INVALID_INPUT]", "'***'", '"STRING"', '"INT"', "SQLSTATE: 22018"),
        '/shop/views.py:17: "cast"',
    ),
    "a cast where lines are not noted": (
        NUMBER + '== DataFrame ==\n"cast" was called from\njava.base/jdk.internal.Accessor.invoke0(Native Method)\n',
        ("'***'",), '"cast"',
    ),
    "a cast in SQL": (NUMBER + OF_SQL, ("'***'",), "SQL line 2, position 3: CAST(name AS INT)"),
    "a cast in SQL of a view": (NUMBER + OF_VIEW, ("'***'",), "SQL line 1, position 8: CAST(name AS INT)"),
    "a cast in a task": (
        f"Job aborted due to stage failure: Task 0 in stage 1.0: org.apache.spark.SparkException: {NUMBER}{OF_FRAME}",
        ("[CAST_INVALID_INPUT]", "'***'"), '/shop/views.py:17: "cast"',
    ),
    "a number": (
        "[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION]  4711.25 cannot be represented as Decimal(5, 2). If necessary set"
        ' "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22003\n' + OF_FRAME,
        ("*** cannot be represented as Decimal(5, 2)",), '/shop/views.py:17: "cast"',
    ),
    "a time": (
        "[CANNOT_PARSE_TIMESTAMP] Text 'O'Hara, line2' could not be parsed at index 0. Use `try_to_timestamp`."
        " SQLSTATE: 22007\n", ("[CANNOT_PARSE_TIMESTAMP]", "could not be parsed"), "",
    ),
    "no quotes": (
        "[MALFORMED_RECORD_IN_PARSING] Malformed records are detected in record parsing: [ann@example.org,line2].\n"
        "Parse Mode: FAILFAST. SQLSTATE: 22023\n", ("[MALFORMED_RECORD_IN_PARSING]", ": ***"), "",
    ),
    "a division by zero": (
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. SQLSTATE: 22012\n" + OF_FRAME,
        ("[DIVIDE_BY_ZERO] Division by zero.",), '/shop/views.py:17: "cast"',
    ),
    "a key that comes twice": (
        "[DUPLICATED_MAP_KEY] Duplicate map key ann@example.org\nline2 was found. SQLSTATE: 23505\n",
        ("[DUPLICATED_MAP_KEY] SQLSTATE: 23505",), "",
    ),
    "what a view raises": (
        "[USER_RAISED_EXCEPTION] no ann@example.org\nline2 SQLSTATE: P0001\n",
        ("[USER_RAISED_EXCEPTION] SQLSTATE: P0001",), "",
    ),
    "a value that reads like another error": (
        NUMBER.replace("line2", "some data may have been lost\nValueError: line2") + OF_FRAME, ("'***'",),
        '/shop/views.py:17: "cast"',
    ),
    "evolve": (python("ValueError: no int: 'ann@example.org'\nline2"), ("ValueError",), "/shop/orders.py:12: evolve"),
    "evolve, without a text": (python("KeyError"), ("KeyError",), "/shop/orders.py:12: evolve"),
    "evolve, one error behind another": (CHAINED, ("shop.errors.NoSuchPerson",), "/shop/orders.py:12: evolve"),
    "Arrow": (
        python("pyarrow.lib.ArrowInvalid: Could not convert 'ann@example.org' with type str: tried to make int32"),
        ("Could not convert '***' with type str: tried to make int32",), "/shop/orders.py:12: evolve",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TOLD)
def test_an_error_of_a_value_or_of_code_names_its_kind_and_line_and_no_value(what: str) -> None:
    message, told, where = TOLD[what]
    error = translate(message, "view people")

    assert type(error) is (SparkFailed if what in ("a key that comes twice", "what a view raises") else CodeFailed)
    assert [part for part in told if part not in error.message] == []
    assert error.place == (f"view people, {where}" if where else "view people")
    assert [value for value in PERSONAL if value in str(error)] == []


def raising(*_: object) -> None:
    raise PySparkException(NUMBER + OF_FRAME)


PEOPLE = View(name="people", key=("id",), tables={}, declared=(), function=raising)


def live_batches(monkeypatch: Any) -> Callable[[], object]:
    for name, part in {"plan": Mock(), "find_affected": raising}.items():
        monkeypatch.setattr(incremental, name, part)
    batches = MagicMock()
    batches.group.name = "shop"
    return lambda: LiveBatches._stage_view(batches, Mock(definition=PEOPLE))


def build(monkeypatch: Any) -> Callable[[], object]:
    building = MagicMock()
    building._group.name, building.state.views = "shop", {}
    building._layout.views = {"people": Mock(definition=PEOPLE)}
    return lambda: Builder._load_views(building, Mock(apply=raising))


@pytest.mark.parametrize("at_work", [live_batches, build])
def test_an_error_of_a_view_s_function_names_the_view(monkeypatch: Any, at_work: Callable[..., Any]) -> None:
    work = at_work(monkeypatch)
    with pytest.raises(CodeFailed) as refused:
        work()

    declared = f"{__file__}:{raising.__code__.co_firstlineno}"
    assert refused.value.place == f'projection group shop, view people ({declared}), /shop/views.py:17: "cast"'


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("ConnectionRefusedError: Connection refused", "ConnectionRefusedError: Connection refused"),
        (
            "projections.errors.TableStoreUnavailable: the views' database failed: gone",
            "projections.errors.TableStoreUnavailable: the views' database failed: gone",
        ),
    ],
)
def test_what_may_pass_is_told_and_tried_again(raised: str, told: str) -> None:
    error = translate(python(raised), "view people")

    assert type(error) is SparkFailed
    assert error.message.startswith(told)


def test_a_value_that_the_database_refuses_keeps_its_type_of_error() -> None:
    refused = "projections.errors.UnsupportedValue: the views' database cannot hold a value: invalid byte sequence"
    assert type(translate(python(refused), "view people")) is UnsupportedValue


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("Received exception when fetching the next record from shop.people-12. If needed, please seek past the record "
         "to continue consumption.", "topic shop.people, partition 12"),
        ("Record batch for partition shop-people-0 at offset 7 is invalid, cause: Record is corrupt",
         "topic shop-people, partition 0, offset 7"),
    ],
)  # fmt: skip
def test_records_that_the_jvm_s_client_cannot_unpack_are_named_by_their_place(said: str, place: str) -> None:
    error = translate(
        f"Job aborted due to stage failure:\norg.apache.kafka.common.KafkaException: {said}", "group people"
    )

    assert isinstance(error, RecordNotUnpacked)
    assert error.place == place
    assert "receive.message.max.bytes" in error.remedy


def test_records_that_the_runner_s_client_cannot_unpack_are_named_by_their_place(monkeypatch: Any) -> None:
    found = RecordsUnreadable("cannot be unpacked", remedy="x", topic="shop.people", partition=12, offset=7)
    readers = [Mock(), Mock()]
    readers[0].read_up_to.side_effect = found
    monkeypatch.setattr(kafka_source, "RangeReader", lambda settings: readers.pop(0))
    monkeypatch.setattr(kafka_source, "end_of_batch", lambda *_, first: first + 4)
    monkeypatch.setattr(kafka_source.OffsetReader, "__init__", lambda self, settings: None)
    first = readers[0]

    with pytest.raises(RecordNotUnpacked) as refused:
        kafka_source.OpenKafkaLog(Mock()).fetch(OffsetRange({"shop.people": {12: 0}}, {"shop.people": {12: 9}}))

    assert refused.value.place == "topic shop.people, partition 12, offsets 7 to 10"
    assert first.close.called


def test_a_place_shows_no_password() -> None:
    with pytest.raises(ProjectionError) as refused, described("s3a://key:sentinel@lake/views?token=sentinel"):
        raise PySparkException("no such folder")

    assert refused.value.place == "s3a://key:***@lake/views?token=***"


# ---- what the views' database reports is a typed error without statement, parameters, or what it quotes of a row


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
    monkeypatch.setattr("projections.stores.copying._pool", loading(adbc.DataError(INVALID, status_code=5)))
    with pytest.raises(UnsupportedValue, match="COPY people, line 3, column age") as refused, _session("uri"):
        pass

    assert SENTINEL not in str(refused.value)


def loading(error: Exception) -> Any:
    def pool(uri: str) -> None:
        raise error

    return pool


def test_rows_that_are_loaded_into_a_file_are_refused_without_the_value(tmp_path: Any) -> None:
    with pytest.raises(TableStoreUnavailable) as refused, session(str(tmp_path / "views.db")) as connection:
        connection.execute(f'SELECT "{SENTINEL}" "{SENTINEL}" "x"')

    assert SENTINEL not in str(refused.value)
