"""Final results of views, as the database keeps them: each once, and what came after it was given out.

They are stored with the runs, and belong to no generation: a result stays given out after a cut-over. Rows are JSON
text, and a later definition may have other columns. ``passed`` says up to which time the results of a view are final,
and when the next one will be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.declaring.view_topics import FinalResults
from projections.errors import InvalidDefinition
from projections.stores import dialects, runs
from projections.stores.dialects import dialect_of, moment_of
from projections.stores.handing_over import Rows
from projections.stores.layout import GenerationLayout, ViewLayout
from projections.stores.own_tables import own_tables
from projections.stores.runs import Run

CHANGED: Final = "changed after it was final"
NEW: Final = "came after the results of its time were final"
REBUILT: Final = "is another in the generation that serves now"
_RESULT: Final = ("group_name", "view", "key", "value")
_LATE: Final = (*_RESULT, "reason")
_NEVER: Final = -(1 << 62)
_REST: Final = 60_000_000  # microseconds after which it is noted how far time has come, though nothing came of it
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_due(connection: sa.Connection, layout: GenerationLayout, run: Run, *, at: int) -> bool:
    """Whether ``give_out`` would write anything, asked without a lock."""
    return runs.serves(connection, run) and any(
        _is_due(connection, run.group, view, final, at) for view, final in _final(layout)
    )


def _is_due(connection: sa.Connection, group: str, view: ViewLayout, final: FinalResults, at: int) -> bool:
    since, known = _passed(connection, group, view.name)
    upto = at - final.after_micros
    if upto > since + _REST or _next_due(connection, view, final, upto) != known:
        return True
    new = _new(connection, group, view, _between(connection, view, final, since, upto))
    return upto > since and bool(connection.scalar(sa.select(new.exists())))


def give_out(connection: sa.Connection, layout: GenerationLayout, run: Run, *, at: int) -> dict[str, int]:
    """Give out what is final at a time, by which all that was in the log is applied; returns how many rows, by view.

    The caller holds the transaction. ProjectionError.
    """
    runs.require_token(connection, run)
    serves = runs.serves(connection, run)
    counts = {view.name: _give_out(connection, run.group, view, final, at) for view, final in _final(layout) if serves}
    return {name: count for name, count in counts.items() if count}


def _give_out(connection: sa.Connection, group: str, view: ViewLayout, final: FinalResults, at: int) -> int:
    """Nothing is written where nothing changes: a result that comes late meanwhile is given out with the next."""
    since, known = _passed(connection, group, view.name)
    upto = at - final.after_micros
    count = _add(connection, group, view, _between(connection, view, final, since, upto)) if upto > since else 0
    due = _next_due(connection, view, final, upto)
    if count or due != known or upto > since + _REST:
        values = {"upto": max(upto, since), "next_due": due}
        passed = upsert(connection, own_tables(connection).passed).values(group_name=group, view=view.name, **values)
        connection.execute(passed.on_conflict_do_update(index_elements=["group_name", "view"], set_=values))
    return count


def note_late(connection: sa.Connection, layout: GenerationLayout, run: Run) -> None:
    """List what a batch changes in results that are final, before it changes the view."""
    for view, final in _final(layout):
        upto, _ = _passed(connection, run.group, view.name)
        if upto > _NEVER and runs.serves(connection, run):
            _note_changed(connection, run.group, view)
            _note_new(connection, run.group, view, final, upto)


def note_rebuilt(connection: sa.Connection, layout: GenerationLayout, group: str) -> None:
    """List where a generation that is about to serve has another row than the one that was given out."""
    results = own_tables(connection).results
    for view, _ in _final(layout):
        rows = Rows.of(view)
        mine = rows.records(connection).subquery()
        given = sa.select(results.c.key, results.c.value).where(*_of(results, group, view.name))
        theirs = given.subquery()
        key, value = mine.c
        other = sa.select(theirs.c.key, value).select_from(theirs.outerjoin(mine, key == theirs.c.key))
        _list_late(connection, group, view.name, other.where(value.is_distinct_from(theirs.c.value)), REBUILT)


def standing(connection: sa.Connection) -> dict[str, dict[str, dict[str, Any]]]:
    """By group and view: the number of results and of late changes, the time up to which they are final, the next."""
    tables = own_tables(connection)
    by_group: dict[str, dict[str, dict[str, Any]]] = {}
    for row in connection.execute(sa.select(tables.passed)):
        due = None if row.next_due is None else moment_of(row.next_due).isoformat()
        summary = {"given_out": 0, "late": 0, "final_upto": moment_of(row.upto).isoformat(), "next_due": due}
        by_group.setdefault(row.group_name, {})[row.view] = summary
    for name, table in (("given_out", tables.results), ("late", tables.late)):
        of = (table.c.group_name, table.c.view)
        for group, view, count in connection.execute(sa.select(*of, sa.func.count()).group_by(*of)):
            by_group.get(group, {}).get(view, {})[name] = count
    return by_group


def _next_due(connection: sa.Connection, view: ViewLayout, final: FinalResults, upto: int) -> int | None:
    """When the next result of a view is final, in microseconds; None where none waits."""
    time = view.view.c[final.on]
    first = connection.scalar(sa.select(sa.func.min(time)).where(time > dialect_of(connection).moment(upto)))
    if first is None:
        return None
    moment = datetime.fromisoformat(first) if isinstance(first, str) else first
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) + final.after_micros


def ahead(connection: sa.Connection, view: ViewLayout, final: FinalResults) -> int:
    """How many rows of a view have a time too far in the future."""
    bound = dialect_of(connection).moment(dialects.now(connection) + final.ahead_micros)
    return int(connection.scalar(sa.select(sa.func.count()).where(view.view.c[final.on] > bound)) or 0)


def _final(layout: GenerationLayout) -> Iterator[tuple[ViewLayout, FinalResults]]:
    return ((view, view.definition.final) for view in layout.views.values() if view.definition.final is not None)


def _of(table: sa.Table, group: str, view: str) -> tuple[sa.ColumnElement[bool], ...]:
    return table.c.group_name == group, table.c.view == view


def _passed(connection: sa.Connection, group: str, view: str) -> tuple[int, int | None]:
    passed = own_tables(connection).passed
    mine = sa.select(passed.c.upto, passed.c.next_due).where(*_of(passed, group, view))
    row = connection.execute(mine).one_or_none()
    return (_NEVER, None) if row is None else (int(row.upto), row.next_due)


def _between(
    connection: sa.Connection, view: ViewLayout, final: FinalResults, since: int, upto: int
) -> sa.Select[str, str]:
    time = view.view.c[final.on]
    bounds = [time <= dialect_of(connection).moment(upto)] + (
        [time > dialect_of(connection).moment(since)] if since > _NEVER else []
    )
    return Rows.of(view).records(connection).where(*bounds)


def _add(connection: sa.Connection, group: str, view: ViewLayout, records: sa.Select[str, str]) -> int:
    """Append results in the order of their keys."""
    new = _new(connection, group, view, records).subquery()
    rows = sa.select(sa.literal(group), sa.literal(view.name), *new.c).order_by(new.c.key)
    statement = sa.insert(own_tables(connection).results).from_select(_RESULT, rows)
    done = connection.execute(statement, execution_options={"preserve_rowcount": True})
    return int(done.rowcount)


def _new(connection: sa.Connection, group: str, view: ViewLayout, records: sa.Select[str, str]) -> sa.Select[str, str]:
    """Those of the records that were not given out, as they may have been by an earlier definition."""
    results = own_tables(connection).results
    key, value = records.subquery().c
    mine = sa.and_(*_of(results, group, view.name), results.c.key == key)
    return sa.select(key.label("key"), value).where(~sa.exists().where(mine))


def _note_changed(connection: sa.Connection, group: str, view: ViewLayout) -> None:
    """What becomes of rows that were given out."""
    results, result = own_tables(connection).results, Rows.of(view, view.result)
    value = sa.case((view.result.c["_deleted"], sa.null()), else_=result.values(connection))
    changed = sa.select(result.keys(connection).label("key"), value.label("value")).select_from(view.result).subquery()
    given = sa.exists().where(*_of(results, group, view.name), results.c.key == changed.c.key)
    _list_late(connection, group, view.name, sa.select(*changed.c).where(given), CHANGED)


def _note_new(connection: sa.Connection, group: str, view: ViewLayout, final: FinalResults, upto: int) -> None:
    """Rows of a time whose results are final that were not among these."""
    results, result = own_tables(connection).results, view.result
    records = Rows.of(view, result).records(connection).add_columns(result.c[final.on].label("time"))
    there = records.where(sa.not_(result.c["_deleted"])).subquery()
    key, value, time = there.c
    given = sa.exists().where(*_of(results, group, view.name), results.c.key == key)
    new = sa.select(key, value).where(time <= dialect_of(connection).moment(upto), ~given)
    _list_late(connection, group, view.name, new, NEW)


def _list_late(connection: sa.Connection, group: str, view: str, rows: sa.Select[Any], reason: str) -> None:
    late_rows = rows.subquery()
    listed = sa.select(sa.literal(group), sa.literal(view), *late_rows.c, sa.literal(reason))
    connection.execute(sa.insert(own_tables(connection).late).from_select(_LATE, listed))


def results_of(
    connection: sa.Connection, group: str, view: str, *, late: bool = False, after: int = 0
) -> Iterator[Mapping[str, Any]]:
    """The results of a view in the order they were given out, or the late changes in the order they came.

    Those with a number greater than ``after``: ``seq``, ``key`` and ``value`` as JSON text, ``at``.
    """
    tables = own_tables(connection)
    table = tables.late if late else tables.results
    query = sa.select(table).where(*_of(table, group, view), table.c.seq > after)
    return (dict(row) for row in connection.execute(query.order_by(table.c.seq)).mappings())


def require_finals(known: Mapping[str, Mapping[str, object]], group: str, view: str) -> None:
    """Raise InvalidDefinition if a view has given out no final results and waits for none."""
    if view in known.get(group, {}):
        return
    raise InvalidDefinition(
        f"view {view!r} of group {group!r} has no final results here",
        remedy=f"name one that has: {', '.join(sorted(known.get(group, {}))) or 'none yet, run the group'}",
        place=f"projection group {group}",
    )
