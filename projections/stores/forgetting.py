"""Rows that go: deleted ones at their horizon, and those of long ago, some at a time between batches.

With each state, ``deleted_*`` has an entry a deletion, in the order of time: what is due stands at its beginning,
however large the state is. ``horizon`` keeps how far in its source each table has lost deleted rows. A change from
before that, of a row that the state does not have, may be of one of those: it is refused, so none comes back unseen.

Rows of long ago are forgotten, and retracted nowhere. The floor of a generation is stored with its rows, and only
rises. It is what counts: rows from before are read by no batch, compared by no verification, and no event of theirs is
applied, whether they are deleted already or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.declaring.tables import BELOW_STREAMED, EVENT_TIME
from projections.errors import CodeFailed, ProjectionError
from projections.faults import FORGOTTEN, TOO_LATE
from projections.stores.dialects import dialect_of, moment_of
from projections.stores.layout import AT, GenerationLayout, HorizonLayout, RetainedLayout, TableLayout, ViewLayout

Condition = sa.ColumnElement[bool]


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


@dataclass(frozen=True)
class Frozen:
    """The rows of a view that do not change any more: those with a time ``before`` in a column."""

    column: str
    before: sa.ColumnElement[Any]

    def among(self, rows: sa.Table) -> Condition:
        """Which of the rows they are."""
        return rows.c[self.column] < self.before


def floor(connection: sa.Connection, layout: GenerationLayout) -> int | None:
    """The time in microseconds before which nothing comes any more; None where nothing was forgotten yet."""
    if layout.retained is None:
        return None
    upto: int | None = connection.scalar(sa.select(sa.func.max(layout.retained.passed.c.upto)))
    return upto


def raise_floor(connection: sa.Connection, retained: RetainedLayout, *, upto: int) -> None:
    """Let the floor be at a time, unless it is beyond."""
    passed = retained.passed
    rows = [{"table_name": name, "upto": upto, "forgotten": 0} for name in retained.rows]
    statement = upsert(connection, passed)
    higher = {"upto": statement.excluded.upto}
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["table_name"], set_=higher, where=statement.excluded.upto > passed.c.upto
        ),
        rows,
    )


def forget(connection: sa.Connection, layout: GenerationLayout, *, most: int) -> dict[str, int]:
    """Delete at most so many rows of each table that nothing reads any more; returns how many, by table."""
    retained, upto = layout.retained, floor(connection, layout)
    if retained is None or upto is None:
        return {}
    counts = {}
    for name, (rows, times) in retained.rows.items():
        if count := _delete(connection, rows, before(connection, rows, times, upto), most):
            counts[name] = count
            passed = retained.passed
            more = sa.update(passed).where(passed.c.table_name == name)
            connection.execute(more.values(forgotten=passed.c.forgotten + count))
    return counts


def _delete(connection: sa.Connection, rows: sa.Table, condition: Condition, most: int) -> int:
    """By the places of rows: a key may be null, and one of many columns."""
    dialect = dialect_of(connection)
    place: sa.ColumnElement[Any] = sa.literal_column(dialect.place)
    first = sa.select(place).select_from(rows).where(condition).limit(most)
    if dialect.looks_up_arrays:
        # As an array it is looked up, and the table is not read.
        chosen = place == sa.func.any(sa.func.array(first.scalar_subquery()))
    else:
        chosen = place.in_(first)
    return int(connection.execute(sa.delete(rows).where(chosen)).rowcount)


def before(connection: sa.Connection, rows: sa.Table, times: Mapping[str, int], upto: int) -> Condition:
    """Whether rows are so far before the floor that nothing reads them; the deleted ones of a stream stay marked."""
    parts = [rows.c[column] < _moment(connection, column, upto - behind) for column, behind in times.items()]
    there = [sa.not_(rows.c["_deleted"])] if "_deleted" in rows.c else []
    return sa.and_(*parts, *there)


def _moment(connection: sa.Connection, column: str, micros: int) -> sa.ColumnElement[Any]:
    return sa.literal(micros, sa.BigInteger) if column == EVENT_TIME else dialect_of(connection).moment(micros)


def forgets(layout: GenerationLayout, view: str) -> bool:
    """Whether rows of a view are forgotten."""
    return layout.retained is not None and f"view_{view}" in layout.retained.rows


def leave_out_of_copies(connection: sa.Connection, layout: GenerationLayout, view: ViewLayout) -> None:
    """Drop the rows of a view that may be forgotten by now from its copies, both by the same floor."""
    upto = floor(connection, layout)
    if layout.retained is None or upto is None or not forgets(layout, view.name):
        return
    _, times = layout.retained.rows[f"view_{view.name}"]
    for copy in (view.live_copy, view.recomputed_copy):
        connection.execute(sa.delete(copy).where(before(connection, copy, times, upto)))


def leave_out(connection: sa.Connection, layout: GenerationLayout, tables: TableLayout) -> bool:
    """Drop the staged rows that came too late, or from before the floor; returns whether any records did.

    ProjectionError: a deletion cannot take back what a forgotten row has become.
    """
    if "_late" not in tables.staged.c:
        return False
    upto, staged = floor(connection, layout), tables.staged
    if upto is not None:
        _require_none_deleted(connection, tables)
    old = sa.false() if upto is None else sa.and_(staged.c[EVENT_TIME] < upto, sa.not_(staged.c["_deleted"]))
    some = sa.select(sa.literal(1)).select_from(staged).where(sa.or_(staged.c["_late"] > 0, old)).limit(1)
    if connection.execute(some).one_or_none() is None:
        return False
    connection.execute(sa.delete(staged).where(sa.or_(staged.c["_late"] == 2, old)))
    return True


def _require_none_deleted(connection: sa.Connection, tables: TableLayout) -> None:
    staged, state = tables.staged, tables.state
    same = sa.and_(*(staged.c[k] == state.c[k] for k in tables.row_key))
    known = sa.exists().where(same, state.c["_deleted"])
    deletions = sa.select(*(staged.c[k] for k in tables.key)).where(staged.c["_deleted"], sa.not_(known)).limit(1)
    if row := connection.execute(deletions).one_or_none():
        raise rows_forgotten(tables.table.topic, key=row[0])


def rows_forgotten(topic: str, *, key: object) -> ProjectionError:
    """An event was deleted, and its row may be one that is forgotten."""
    return ProjectionError(
        "a stream of events was deleted, and rows of it may be forgotten: their results cannot be taken back",
        remedy="rebuild the projection. Leave out retain= for events that are deleted often",
        place=f"topic {topic}, key {key}",
        code="rows-forgotten",
    )


def frozen_before(connection: sa.Connection, layout: GenerationLayout, view: ViewLayout) -> Frozen | None:
    """Before which time rows of a view with a reach do not change any more; None for no such view."""
    upto, retained = floor(connection, layout), layout.retained
    if retained is None or upto is None or view.name not in retained.frozen:
        return None
    column, behind = retained.frozen[view.name]
    return Frozen(column, dialect_of(connection).moment(upto - behind))


def require_times(connection: sa.Connection, view: ViewLayout, rows: sa.Table) -> None:
    """Refuse a row without a time in a view whose rows are distinguished by it; CodeFailed."""
    reach = view.definition.reach
    if reach is None:
        return
    missing = [rows.c[reach.on].is_(None)] + ([sa.not_(rows.c["_deleted"])] if "_deleted" in rows.c else [])
    if connection.execute(sa.select(sa.literal(1)).select_from(rows).where(*missing).limit(1)).one_or_none():
        raise CodeFailed(
            f"view {view.name!r} returned a row without {reach.on!r}, and its reach counts from there",
            remedy=f"return a time of every row, coalesce(…) AS {reach.on}",
            place=view.definition.place,
        )


def standing(connection: sa.Connection, passed: sa.Table, aside: sa.Table) -> dict[str, Any]:
    """Up to which time rows are forgotten, how many by table, and how many events were set aside for it, by kind."""
    if not sa.inspect(connection).has_table(passed.name, schema=passed.schema):
        return {}
    rows = list(connection.execute(sa.select(passed)))
    upto = max((row.upto for row in rows), default=None)
    kinds = sa.select(aside.c.kind, sa.func.count()).where(aside.c.kind.in_((TOO_LATE, FORGOTTEN)))
    return {
        "upto": None if upto is None else moment_of(upto).isoformat(),
        "forgotten": {row.table_name: row.forgotten for row in rows},
        "set_aside": {kind: count for kind, count in connection.execute(kinds.group_by(aside.c.kind))},
    }
