"""The rows of a history as of a time: one query of the view that readers see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa

from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.declaring.timing.validity import columns_of, validity_of
from projections.declaring.views import View
from projections.errors import InvalidDefinition
from projections.stores import dialects
from projections.stores.dialects import dialect_of
from projections.stores.opening import opened
from projections.stores.runs import require_unchanged
from projections.stores.sql import TableStore

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rows_as_of(views: str | TableStore, group: ProjectionGroup, history: str | View, moment: datetime) -> pa.Table:
    """Return the rows of a history that were valid at a moment, in the order of the key. A future moment means now.

    Args:
        views: The views' database or its URL.
        group: The group.
        history: The view that `history` declares.
        moment: The moment, with a time zone.

    Raises:
        InvalidDefinition: The view is no history, the moment has no time zone, or ``keep`` has removed versions of it.
        DefinitionChanged: Another definition built the generation.
        NoServingGeneration: The group was not built yet.
        TableStoreUnavailable: The database did not answer.

    Examples:
        >>> rows = rows_as_of("sqlite:///shop.db", shop_views, customer_history, datetime(2026, 11, 9, tzinfo=UTC))
        >>> rows["city"].to_pylist()
        ['Berlin']
    """
    name = history if isinstance(history, str) else history.name
    require_zone(moment)
    validity, columns = validity_of(group, name), columns_of(group, name)
    with opened(views) as store, store.looking() as connection:
        state = store.serving_state(group.name)
        require_unchanged(group, state, state.built.get("columns", {}))
        view = sa.table(name, *map(sa.column, columns))
        start, end = view.c[validity.start], view.c[validity.end]
        at = dialect_of(connection).moment(_micros(moment))
        if validity.keep is not None:
            _require_retained(connection, name, (start, end), moment, validity.keep)
        valid = sa.and_(sa.or_(start.is_(None), start <= at), sa.or_(end.is_(None), end > at))
        key = [view.c[c] for c in group.view(name).by]
        rows = connection.execute(sa.select(*(view.c[c] for c in columns)).where(valid).order_by(*key)).all()
    return _arrow(rows, columns)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def require_zone(moment: datetime) -> None:
    """Raise InvalidDefinition for a moment without a time zone."""
    if moment.tzinfo is None:
        raise InvalidDefinition(
            f"the moment {moment.isoformat()} has no time zone", remedy="give it one, datetime(…, tzinfo=UTC)"
        )


def _require_retained(
    connection: sa.Connection, name: str, times: Sequence[sa.ColumnElement[Any]], moment: datetime, keep: int
) -> None:
    """What ended later than ``keep`` before now is there, unless its row has a change whose time is still to come."""
    expires = _micros(moment) + keep
    newest = sa.or_(*(time > dialect_of(connection).moment(expires) for time in times))
    is_short = expires < dialects.now(connection) or connection.scalar(sa.select(sa.literal(1)).where(newest).limit(1))
    if is_short:
        raise InvalidDefinition(
            f"history {name!r} keeps versions for {timedelta(microseconds=keep)}, and {moment.isoformat()} is longer"
            " before now, or before a change whose time is still to come",
            remedy="ask for a later time, or declare the history with a longer keep, and rebuild the group",
            place=f"view {name}",
        )


def _arrow(rows: Sequence[sa.Row[Any]], columns: Mapping[str, ColumnType]) -> pa.Table:
    arrays = {c: _array([row[n] for row in rows], kind) for n, (c, kind) in enumerate(columns.items())}
    return pa.table(arrays)


def _array(values: Sequence[Any], column: ColumnType) -> pa.Array:
    """Values in their type; SQLite has text for decimals and times, and numbers for truth."""
    kind = column.arrow()
    match column.kind:
        case "decimal":
            return pa.array([None if v is None else Decimal(v) for v in values], kind)
        case "boolean":
            return pa.array([None if v is None else bool(v) for v in values], kind)
        case "timestamp" | "date" if any(isinstance(v, str) for v in values):
            return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
