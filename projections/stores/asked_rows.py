"""Rows of a SELECT that a person writes over the views of one generation: read only, bounded in rows and in time.

The text is parsed, and what runs is written from what was parsed. Each part of it is of a kind that is listed here, and
each name is a plain word: nothing else of the text reaches the database. A view becomes a subquery over its table.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from eventstore.delivery.source import MASK
from projections.errors import ProjectionError
from projections.stores.behind_rows import ViewRows, personal_of
from projections.stores.dialects import dialect_of
from projections.stores.layout import view_table
from projections.stores.runs import Run
from projections.stores.sql import TableStore

_SECONDS: Final = 5.0
_STEPS: Final = 10_000  # of SQLite's machine, between two looks at the clock: about a millisecond
_LENGTH: Final = 1_000_000  # of a value in SQLite
_JOINED: Final = 8  # texts that are joined: each may double what was joined before
_PARTS: Final = frozenset({
    exp.Select, exp.Union, exp.Except, exp.Intersect, exp.Subquery, exp.From, exp.Join, exp.Where, exp.Group,
    exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Distinct, exp.Star, exp.Table, exp.TableAlias,
    exp.Alias, exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Tuple, exp.Var,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In, exp.Between, exp.Like,
    exp.ILike, exp.Exists, exp.Any, exp.All, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.DPipe,
    exp.Case, exp.If, exp.Cast, exp.DataType, exp.DataTypeParam, exp.Filter, exp.Window, exp.RowNumber,
    exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.Coalesce, exp.Nullif, exp.Abs, exp.Ceil, exp.Floor, exp.Round,
    exp.Lower, exp.Upper, exp.Length, exp.Trim, exp.Substring, exp.Extract, exp.Date, exp.CurrentDate,
    exp.CurrentTimestamp,
})  # fmt: skip
_TYPES: Final = frozenset({
    exp.DType.INT, exp.DType.BIGINT, exp.DType.SMALLINT, exp.DType.DOUBLE, exp.DType.FLOAT, exp.DType.DECIMAL,
    exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.BOOLEAN, exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ,
})  # fmt: skip
_WORD: Final = re.compile(r"\w{1,63}")
_NUMBER: Final = re.compile(r"\d+(\.\d+)?([eE][+-]?\d{1,3})?")


def query_rows(
    store: TableStore, group: str, generation: int, text: str, *, views: Sequence[str], limit: int = 200
) -> ViewRows:
    """Return the first rows of a query over views of a generation; `total` is one more if there are more.

    The text reads masks in place of personal columns. Raises ProjectionError.
    """
    run = Run(group, generation, "")
    state, space = store.state(run), store.space(run)
    with store.looking() as connection:
        dialect = store.dialect.parser
        query = _parsed(text, dialect)
        for table in list(query.find_all(exp.Table)):
            if table.name not in views:
                raise _refused(f"{table.name} is none of the views {', '.join(views)}")
            own = view_table(space, table.name, {})
            columns = tuple(connection.execute(sa.select(sa.literal_column("*")).select_from(own).limit(0)).keys())
            table.replace(_masked(table, own, columns, personal_of(state, "views", table.name, columns)))
        bounded = exp.select("*").from_(query.subquery("asked")).sql(dialect, comments=False)
        try:
            with _reading(connection):
                result = _bounded(connection, bounded, limit + 1)
                columns, rows = tuple(result.keys()), [tuple(row) for row in result]
        except sa.exc.DBAPIError as error:
            raise _refused(f"the database refuses the query: {str(error.orig).splitlines()[0]}") from None
    return ViewRows(columns, rows[:limit], len(rows))


def asked_condition(text: str, *, hidden: Collection[str]) -> str:
    """Return a condition over columns as Spark reads it, written from its parts; none of it reads `hidden` columns.

    Raises ProjectionError for anything but comparisons of columns and values by common functions.
    """
    try:
        query = _parsed(" ".join(("SELECT 1 FROM asked WHERE", text)), "spark")
    except ProjectionError as error:
        raise _no_condition(error.message.replace("a query here has no", "a condition cannot use")) from None
    given = {name for name, value in query.args.items() if value}
    condition = query.args["where"].this if given <= {"expressions", "from_", "from", "where"} else None
    if condition is None or condition.find(exp.Query, exp.Star) is not None:
        raise _no_condition("a condition compares columns and values, and holds no query")
    unseen = {name.lower() for name in hidden}  # Spark takes a name for a column in any case
    for column in condition.find_all(exp.Column):
        if column.name.lower() in unseen:
            raise _no_condition(f"column {column.name!r} has values of persons, and a condition would show them")
    return str(condition.sql("spark", comments=False))


def _no_condition(cause: str) -> ProjectionError:
    remedy = "compare columns with =, <, IN, BETWEEN, LIKE or IS NULL, joined by AND and OR"
    return ProjectionError(cause, remedy=remedy, code="query-refused")


def _bounded(connection: sa.Connection, text: str, limit: int) -> sa.CursorResult[Any]:
    """Run one statement. With a parameter, a driver sends no second one."""
    if connection.dialect.paramstyle == "qmark":
        return connection.exec_driver_sql(f"{text} LIMIT ?", (limit,))
    return connection.exec_driver_sql(f"{text.replace('%', '%%')} LIMIT %s", (limit,))


def _parsed(text: str, dialect: str) -> exp.Query:
    try:
        (query,) = sqlglot.parse(text.strip().rstrip(";"), dialect=dialect)
    except (SqlglotError, RecursionError, ValueError):
        raise _refused("the text is not one query that can be read") from None
    if not isinstance(query, exp.Query):
        raise _refused("the text is no SELECT")
    for part in query.walk():
        if type(part) not in _PARTS or not _is_plain(part):
            raise _refused(f"a query here has no {part.sql(dialect)[:80]}")
    if len(list(query.find_all(exp.DPipe))) > _JOINED:
        raise _refused("the query joins too many texts")
    return query


def _is_plain(part: exp.Expr) -> bool:
    """Whether a part is written as words, numbers and quoted texts alone, and means what its kind says."""
    given = {name: value for name, value in part.args.items() if value}
    if isinstance(part, exp.Table):
        return given.keys() <= {"this", "alias"} and isinstance(part.this, exp.Identifier)
    if isinstance(part, exp.DataType):
        return part.this in _TYPES and given.keys() <= {"this", "expressions", "nested"}
    if isinstance(part, exp.Literal):
        # A server may take a backslash for an escape.
        return "\\" not in part.this if part.is_string else _NUMBER.fullmatch(part.this) is not None
    if isinstance(part, exp.DataTypeParam):
        return isinstance(part.this, exp.Literal) and part.this.is_int and int(part.this.this) <= _LENGTH // 1000
    values = (one for value in given.values() for one in (value if isinstance(value, list) else [value]))
    return all(_WORD.fullmatch(value) for value in values if isinstance(value, str))


def _masked(table: exp.Table, own: sa.Table, columns: Sequence[str], personal: Collection[str]) -> exp.Subquery:
    """Return what stands for a view in a text: its rows, with a mask for each personal value."""
    shown = [
        exp.alias_(exp.Literal.string(MASK), column, quoted=True)
        if column in personal
        else exp.to_identifier(column, quoted=True)
        for column in columns
    ]
    name = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
    rows = exp.select(*shown).from_(exp.table_(own.name, db=own.schema, quoted=True))
    return exp.Subquery(this=rows, alias=name.copy())


@contextmanager
def _reading(connection: sa.Connection) -> Iterator[None]:
    """Let the block read alone, for a bounded time."""
    if dialect_of(connection).has_schemas:
        connection.exec_driver_sql("BEGIN READ ONLY")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {_SECONDS * 1000:.0f}")
        connection.exec_driver_sql("SET LOCAL search_path = pg_catalog")
        try:
            yield
        finally:
            if not connection.invalidated:  # as what a read-only transaction refuses leaves it
                connection.exec_driver_sql("ROLLBACK")
        return
    driver, until = connection.connection.driver_connection, time.monotonic() + _SECONDS
    assert driver is not None  # noqa: S101 - the connection is open
    connection.exec_driver_sql("PRAGMA query_only = ON")
    driver.set_progress_handler(lambda: int(time.monotonic() > until), _STEPS)
    length = driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LENGTH)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)
        driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
        connection.exec_driver_sql("PRAGMA query_only = OFF")


def _refused(cause: str) -> ProjectionError:
    return ProjectionError(
        cause, remedy="write one SELECT over the views, with subqueries and common functions", code="query-refused"
    )
