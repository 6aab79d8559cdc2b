"""The decorator of views, which makes a view of a function, and views of the rows of a table with their windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from projections.declaring.any_table import AnyTable
from projections.declaring.binding import bind, tables_of
from projections.declaring.naming import checked_identifier, parameters
from projections.declaring.timing.promises import InWindows, Reach
from projections.declaring.timing.windows import Cumulative, Hopping, Session, Tumbling, Window, lasts
from projections.declaring.view_topics import FinalResults, ViewTopic
from projections.declaring.views import Columns, Input, View, as_columns
from projections.errors import InvalidDefinition


def windowed(
    name: str,
    table: Input,
    window: Window,
    *,
    on: str,
    columns: Sequence[str] | None = None,
    named: str = "window",
    topic: str | ViewTopic | None = None,
) -> View:
    """Declare a view of a table's rows with the window of each. Other views group or join it.

    A row without a time is in no window. The key is the table's. If a row may be in several windows, the key begins
    with the window.

    Args:
        name: The name of the view.
        table: The table or view.
        window: The windows.
        on: The column of a row's time.
        columns: Columns of the result, in addition to the key and ``on``. By default all.
        named: The prefix of ``window_start`` and ``window_end`` (exclusive).
        topic: A topic that gets the view's rows too.

    Raises:
        InvalidDefinition: The view cannot work. Missing columns are found when the table's columns are known.

    Examples:
        >>> windowed("hourly_payments", payments, tumbling("1 hour"), on="paid_at")
    """
    from projections.spark.timing.windowing import Windowing  # needs the extra spark

    checked_identifier(name, what="view")
    checked_identifier(named, what="window")
    by, own = window.key(table, named)
    if not table.key and (by or own or columns is not None):
        raise InvalidDefinition(
            f"view {name!r} makes windows of {table.name!r}, whose key is not known before Spark plans it",
            remedy="name the key where the query is declared: sql_view(…, key='…')",
            place=f"view {name}",
        )
    chosen = None if columns is None else tuple(dict.fromkeys((*table.key, *by, on, *columns)))
    if isinstance(table, AnyTable):
        _require_columns(table, name, on, chosen or ())
    role = table.name or f"{name}_rows"
    function = Windowing(window, on, chosen, named, parameters(role))
    windows = InWindows(on, f"{named}_start", f"{named}_end", lasts(window))
    return bind(name, function, {role: table}, key=own, by=by, topic=topic, windows=windows)


def by_windows(view: str, window: Window, tables: Mapping[str, Input]) -> tuple[tuple[str, ...], dict[str, Input]]:
    """The columns of a partition that a window is, and a view's tables, the first of them with its windows."""
    (first, table), *others = tables.items()
    if window.on is None:
        raise InvalidDefinition(
            f"view {view!r} groups by windows, and does not say of which time",
            remedy="name the column of a row's time: tumbling('1 day', on='placed_at')",
            place=f"view {view}",
        )
    rows = windowed(f"{view}_windows", table, window, on=window.on)
    columns = window.by if isinstance(window, Session) else ()
    edge = "window_end" if isinstance(window, Cumulative) else "window_start"  # which no two windows share
    return (*columns, edge), {first: rows, **dict(others)}


def _require_columns(table: AnyTable, name: str, on: str, columns: Sequence[str]) -> None:
    for column in (on, *columns):
        if column not in table.columns:
            raise InvalidDefinition(
                f"view {name!r} takes column {column!r}, which its table does not have",
                remedy=f"its columns are: {', '.join(table.columns)}",
                place=f"view {name}",
                code="unknown-column",
            )


def _refuse_bare(function: object) -> None:
    if function is not None:
        raise InvalidDefinition(
            f"view {getattr(function, '__name__', function)!r} has neither a key nor a partition",
            remedy='write @view(key="…") above it, with the root\'s key',
        )


def view(
    bare: object = None,
    /,
    *,
    key: Columns | None = None,
    by: Columns | Window | None = None,
    tables: Mapping[str, Input] | None = None,
    topic: str | ViewTopic | None = None,
    lake: str | None = None,
    final: FinalResults | None = None,
    reach: Reach | None = None,
) -> Callable[[Callable[..., Any]], View]:
    """Declare a view. The function's parameters name inputs of its module, or of ``tables``. The first is the root.

    Args:
        key: The columns of the key, which the plan must prove. With ``by``, further columns that distinguish rows of a
            partition.
        by: Columns that every table has: the function gets the rows of one value of them at a time. Or windows of the
            first table's rows, such as ``tumbling("1 day", on="placed_at")``: the function gets the rows of one window.
        topic: A topic that gets the view's rows too.
        lake: A Delta table that gets the view's rows too, by its absolute path or URI.
        final: When rows do not change any more. Each is then given out once.
        reach: How far in time the function looks. Streams with ``retain`` need it if nothing groups by windows.

    Raises InvalidDefinition.

    Examples:
        >>> @view(key="order_id")
        ... def named(orders: DataFrame, customers: DataFrame) -> DataFrame:
        ...     return orders.join(customers.withColumnRenamed("id", "customer_id"), "customer_id", "left")
    """
    _refuse_bare(bare)

    def declare(function: Callable[..., Any]) -> View:
        name = checked_identifier(function.__name__, what="view")
        taken = tables_of(function, tables or {})
        if isinstance(by, Tumbling | Hopping | Cumulative | Session):
            partition, taken = by_windows(name, by, taken)
        else:
            partition = as_columns(by or ())
        own = as_columns(key or ())
        if not partition and not own:
            raise InvalidDefinition(
                f"view {name!r} has neither a key nor columns to group by",
                remedy="pass key='…' (the first table's), or by='…' for one row a group",
            )
        return bind(name, function, taken, key=own, by=partition, topic=topic, lake=lake, final=final, reach=reach)

    return declare
