"""Rows of a SELECT that a person writes over the views of one generation: read only, bounded in rows and in time.

The text is parsed, and what runs is written from what was parsed. It names views alone, each of which becomes its own
table, and common functions alone: another one, such as pg_read_file, might do anything.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from eventstore.delivery.masking import MASK
from projections.errors import ProjectionError
from projections.stores.behind_rows import ViewRows, personal_of
from projections.stores.layout import generation_name, view_table
from projections.stores.runs import Run
from projections.stores.sql import SqlTableStore

_SECONDS: Final = 5.0
_STEPS: Final = 10_000  # of SQLite's machine, between two looks at the clock: about a millisecond
_DIALECTS: Final = {"postgresql": "postgres"}  # sqlglot's names, if they are others
_NO_PART: Final = (exp.With, exp.Into, exp.Lock, exp.Parameter, exp.Placeholder, exp.UDTF)
_FUNCTIONS: Final = (
    exp.AggFunc, exp.Connector, exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Exists, exp.Abs, exp.Ceil,
    exp.Floor, exp.Round, exp.Lower, exp.Upper, exp.Length, exp.Trim, exp.Substring, exp.Concat, exp.StrPosition,
    exp.Extract, exp.TimestampTrunc, exp.Date, exp.CurrentDate, exp.CurrentTimestamp, exp.RowNumber,
)  # fmt: skip


class QueryRefused(ProjectionError):
    """A query is no single SELECT over views that may be shown, or its database refuses it."""


def query_rows(
    store: SqlTableStore, group: str, generation: int, text: str, *, views: Sequence[str], limit: int = 200
) -> ViewRows:
    """Return the first rows of a query over views of a generation; `total` is one more if there are more.

    The text reads masks in place of personal columns. Raises QueryRefused.
    """
    state = store.state(Run(group, generation, ""))
    space = store.dialect.name_space(generation_name(group, generation))
    with store.looking() as connection:
        dialect = _DIALECTS.get(connection.dialect.name, connection.dialect.name)
        query = _parsed(text, dialect)
        for table in list(query.find_all(exp.Table)):
            if not isinstance(table.this, exp.Identifier) or table.db or table.name not in views:
                raise _refused(f"{table.sql()[:80]} is none of the views {', '.join(views)}")
            own = view_table(space, table.name, {})
            columns = tuple(connection.execute(sa.select(sa.literal_column("*")).select_from(own).limit(0)).keys())
            table.replace(_masked(table, own, columns, personal_of(state, table.name, columns)))
        bounded = exp.select("*").from_(query.subquery("asked")).limit(limit + 1).sql(dialect)
        try:
            with _reading(connection):
                result = connection.execution_options(no_parameters=True).exec_driver_sql(bounded)
                columns, rows = tuple(result.keys()), [tuple(row) for row in result]
        except sa.exc.DBAPIError as error:
            raise _refused(f"the database refuses the query: {str(error.orig).splitlines()[0]}") from None
    return ViewRows(columns, rows[:limit], len(rows))


def _parsed(text: str, dialect: str) -> exp.Query:
    try:
        (query,) = sqlglot.parse(text.strip().rstrip(";"), dialect=dialect)
    except (SqlglotError, RecursionError, ValueError):
        raise _refused("the text is not one query that can be read") from None
    if not isinstance(query, exp.Query):
        raise _refused("the text is no SELECT")
    for part in query.walk():
        if isinstance(part, _NO_PART) or (isinstance(part, exp.Func) and not isinstance(part, _FUNCTIONS)):
            raise _refused(f"a query here has no {part.sql(dialect)[:80]}")
    return query


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
    if connection.dialect.name == "postgresql":
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
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)
        connection.exec_driver_sql("PRAGMA query_only = OFF")


def _refused(cause: str) -> QueryRefused:
    return QueryRefused(cause, remedy="write one SELECT over the views, with subqueries and common functions")
