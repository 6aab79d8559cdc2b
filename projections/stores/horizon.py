"""Deleted rows up to their horizon: noted at their deletion, and removed some at a time when that is long enough ago.

With each state, ``deleted_*`` has an entry a deletion, in the order of time: what is due stands at its beginning,
however large the state is. ``horizon`` keeps how far in its source each table has lost deleted rows. A change from
before that, of a row that the state does not have, may be of one of those: it is refused, so none comes back unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.declaring.tables import BELOW_STREAMED
from projections.errors import ProjectionError
from projections.stores.layout import AT, GenerationLayout, HorizonLayout, TableLayout


@dataclass(frozen=True)
class Passed:
    """The newest place in its source of which a table has lost a row, and how many deletions are settled."""

    epoch: int = 0
    place: int = 0
    settled: int = 0

    def and_then(self, other: Passed) -> Passed:
        """After more deletions."""
        return Passed(*max((self.epoch, self.place), (other.epoch, other.place)), settled=self.settled + other.settled)


def ensure(connection: sa.Connection, layout: GenerationLayout, *, now: int) -> None:
    """Make the tables in a generation that was built before there were any; its deleted rows count from now on."""
    layout.horizon.create(connection, checkfirst=True)
    for table, horizon in _with_horizon(layout):
        if not sa.inspect(connection).has_table(horizon.deleted.name, schema=horizon.deleted.schema):
            horizon.deleted.create(connection)
            _note(connection, table, horizon, table.state, now)


def note_loaded(connection: sa.Connection, layout: GenerationLayout, *, now: int) -> None:
    """Note the deleted rows of states that were loaded just now, in seconds since 1970."""
    for table, horizon in _with_horizon(layout):
        _note(connection, table, horizon, table.state, now)


def note_staged(connection: sa.Connection, layout: GenerationLayout, *, now: int) -> None:
    """Note what a batch deletes, in the transaction that deletes it."""
    for table, horizon in _with_horizon(layout):
        _note(connection, table, horizon, table.staged, now)


def let_go(connection: sa.Connection, layout: GenerationLayout, *, before: int, most: int) -> dict[str, int]:
    """Settle at most so many deletions a table that were noted up to ``before``; returns their numbers, by table.

    A row that came back since stays. Rows of captured tables and of views go. What is deleted of an event topic is so
    for good, and its rows are emptied: nothing else tells a repeated first event from the first one of a new stream.
    """
    settled = {}
    for table, horizon in _with_horizon(layout):
        if _any(connection, horizon, before):
            settled[horizon.table] = _let_go(connection, table, horizon, before, most)
    return settled


def require_newer(connection: sa.Connection, layout: TableLayout) -> None:
    """Raise ProjectionError for a staged change that may be of a removed row."""
    if layout.horizon is None or not layout.table.sent_again:
        return
    passed = _passed(connection, layout.horizon)
    if passed is None:
        return
    staged, state = layout.staged, layout.state
    same = sa.and_(*(staged.c[k] == state.c[k] for k in layout.row_key))
    older = sa.tuple_(staged.c["_epoch"], _place(staged)) <= sa.tuple_(*map(sa.literal, (passed.epoch, passed.place)))
    key = [staged.c[k] for k in layout.key]
    query = sa.select(*key).select_from(staged.outerjoin(state, same))
    query = query.where(older, state.c["_pos"].is_(None), sa.not_(staged.c["_deleted"]))
    if row := connection.execute(query.limit(1)).one_or_none():
        raise older_than_horizon(layout.table.topic, key=tuple(row))


def older_than_horizon(topic: str, *, key: tuple[Any, ...]) -> ProjectionError:
    """A change of a row that the state does not have, from before deletions of which nothing is known any more."""
    return ProjectionError(
        "a change came that is older than forgotten deletions, and it may repeat a change of one of them",
        remedy="rebuild, once the source has caught up: the log knows. A longer horizon= lets such changes come",
        place=f"topic {topic}, key {', '.join(map(str, key))}",
        code="older-than-horizon",
    )


def _with_horizon(layout: GenerationLayout) -> Iterator[tuple[TableLayout, HorizonLayout]]:
    return ((table, table.horizon) for table in layout.tables.values() if table.horizon is not None)


def _note(connection: sa.Connection, layout: TableLayout, horizon: HorizonLayout, rows: sa.Table, now: int) -> None:
    columns = [*layout.row_key, "_offset"]
    deletions = sa.select(sa.literal(now, sa.BigInteger), *(rows.c[c] for c in columns)).where(rows.c["_deleted"])
    into = upsert(connection, horizon.deleted).from_select([AT, *columns], deletions)
    connection.execute(into.on_conflict_do_nothing())


def _any(connection: sa.Connection, horizon: HorizonLayout, before: int) -> bool:
    at = horizon.deleted.c[AT]
    return connection.scalar(sa.select(at).where(at <= before).limit(1)) is not None


def _let_go(connection: sa.Connection, layout: TableLayout, horizon: HorizonLayout, before: int, most: int) -> int:
    state, deleted = layout.state, horizon.deleted
    of_deletion, of_entry = [*layout.row_key, "_offset"], [column.name for column in deleted.primary_key]
    first = sa.select(deleted).where(deleted.c[AT] <= before).order_by(*deleted.primary_key).limit(most).subquery()
    due = sa.tuple_(*(state.c[c] for c in of_deletion)).in_(sa.select(*(first.c[c] for c in of_deletion)))
    # Where a topic has grown, the key's next record may have the same offset.
    expired = sa.and_(due, state.c["_deleted"])
    epoch, place = _last(connection, state, expired)
    if horizon.emptied:
        connection.execute(sa.update(state).where(expired).values(dict.fromkeys(horizon.emptied)))
    else:
        connection.execute(sa.delete(state).where(expired))
    settled = sa.tuple_(*(deleted.c[c] for c in of_entry)).in_(sa.select(*(first.c[c] for c in of_entry)))
    removed = int(connection.execute(sa.delete(deleted).where(settled)).rowcount)
    _keep_passed(connection, horizon, Passed(epoch, place, removed))
    return removed


def _last(connection: sa.Connection, state: sa.Table, condition: sa.ColumnElement[bool]) -> tuple[int, int]:
    """The place in the source of the newest of some rows; its beginning where there are none."""
    place = state.c["_epoch"], _place(state)
    newest = sa.select(*place).where(condition).order_by(*(p.desc() for p in place)).limit(1)
    row = connection.execute(newest).one_or_none()
    return (0, 0) if row is None else (row[0], row[1])


def _place(rows: sa.Table) -> sa.ColumnElement[int]:
    """Where in the source a row is from, a snapshot's too."""
    position = rows.c["_pos"]
    return sa.case((position < 0, position + BELOW_STREAMED), else_=position)


def _passed(connection: sa.Connection, horizon: HorizonLayout) -> Passed | None:
    table = horizon.passed
    query = sa.select(table.c.epoch, table.c.place, table.c.settled).where(table.c.table_name == horizon.table)
    row = connection.execute(query).one_or_none()
    return None if row is None else Passed(*row)


def _keep_passed(connection: sa.Connection, horizon: HorizonLayout, passed: Passed) -> None:
    known = _passed(connection, horizon) or Passed()
    row = {"table_name": horizon.table, **vars(known.and_then(passed))}
    statement = upsert(connection, horizon.passed).values(row)
    connection.execute(statement.on_conflict_do_update(index_elements=["table_name"], set_=row))


def settled(connection: sa.Connection, passed: sa.Table) -> dict[str, int]:
    """How many deletions were settled so far, by table; none in a generation that has no such table yet."""
    if not sa.inspect(connection).has_table(passed.name, schema=passed.schema):
        return {}
    return {row.table_name: row.settled for row in connection.execute(sa.select(passed))}
