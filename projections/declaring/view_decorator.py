"""The decorator of views: it makes a view of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from projections.declaring.binding import bind, tables_of
from projections.declaring.finals import FinalResults
from projections.declaring.naming import checked_identifier
from projections.declaring.timing.promises import Reach
from projections.declaring.timing.windowed import by_windows
from projections.declaring.timing.windows import Cumulative, Hopping, Session, Tumbling, Window
from projections.declaring.view_topics import ViewTopic
from projections.declaring.views import Columns, Input, View, as_columns
from projections.errors import InvalidDefinition


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
