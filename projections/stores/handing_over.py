"""What goes into the outbox of topics and Delta tables, in the transaction that changes what readers of a view see.

Only the generation that serves writes to it, under the lock of its run's row. The numbers of a group's records rise in
the order of its commits, and a reader that continues from a number misses nothing.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.declaring.columns import ColumnType, Kind
from projections.declaring.view_topics import RESET
from projections.stores import outbox, runs
from projections.stores.dialects import dialect_of
from projections.stores.layout import GenerationLayout, ViewLayout
from projections.stores.outbox import columns_of, require_ours, said_columns
from projections.stores.own_tables import own_tables
from projections.stores.runs import Run

_RECORD: Final = ("group_name", "topic", "key", "value")
Text = sa.ColumnElement[str]
_Spelling = Mapping[Kind, Callable[[sa.ColumnElement[Any]], Text]]
_LARGEST_DOUBLE: Final = 1.7976931348623157e308


@dataclass(frozen=True)
class Rows:
    """A table of a view's rows, as the topic's records are made of them."""

    table: sa.TableClause
    key: Sequence[str]
    columns: Mapping[str, ColumnType]

    @staticmethod
    def of(view: ViewLayout, table: sa.Table | None = None) -> Rows:
        """Of a view, or of a table with its columns."""
        return Rows(view.view if table is None else table, view.definition.key, view.columns)

    @staticmethod
    def of_json(stored: Mapping[str, Any]) -> Rows:
        """As the topic's row keeps it, in case the definition no longer exists."""
        columns = columns_of(stored["columns"])
        names: list[sa.ColumnClause[Any]] = [sa.column(name) for name in columns]
        return Rows(sa.table(stored["table"], *names, schema=stored["schema"]), stored["key"], columns)

    def to_json(self) -> dict[str, Any]:
        """The form it is stored in."""
        place = {"schema": self.table.schema, "table": self.table.name}
        return {**place, "key": list(self.key), "columns": said_columns(self.columns)}

    def keys(self, connection: sa.Connection) -> sa.ColumnElement[str]:
        """The record's key."""
        return json_object(connection, self.table, [(name, self.columns[name]) for name in self.key])

    def values(self, connection: sa.Connection) -> sa.ColumnElement[str]:
        """The record's value."""
        return json_object(connection, self.table, self.columns.items())

    def records(self, connection: sa.Connection) -> sa.Select[str, str]:
        """A record for each row."""
        return sa.select(self.keys(connection), self.values(connection))


def hand_over_batch(connection: sa.Connection, layout: GenerationLayout, run: Run) -> None:
    """Add what a batch changes in views with a topic, if the run serves; the caller holds the run's row."""
    published = list(_published(layout))
    if not published or not runs.serves(connection, run):
        return
    for topic, view in published:
        rows = Rows.of(view, view.result)
        value = sa.case((view.result.c["_deleted"], sa.null()), else_=rows.values(connection))
        _add(connection, run.group, topic, sa.select(rows.keys(connection), value).select_from(view.result))


def hands_over(layout: GenerationLayout) -> bool:
    """Whether any view has a topic or a Delta table, which a cut-over makes equal to it."""
    return any(_published(layout))


def _published(layout: GenerationLayout) -> Iterator[tuple[str, ViewLayout]]:
    return ((place, view) for view in layout.views.values() for place in view.definition.filled)


def _of_results(layout: GenerationLayout) -> Mapping[str, str]:
    """The views whose final results fill a topic, by its name."""
    final = ((view.name, view.definition.final) for view in layout.views.values())
    topics = ((name, results.published) for name, results in final if results is not None)
    return {topic.name: name for name, topic in topics if topic is not None}


def hand_over_generation(connection: sa.Connection, layout: GenerationLayout, group: str) -> None:
    """Add what makes each topic equal to this generation's view; the caller holds all rows of the group's runs.

    That is the difference to the view whose rows the topic holds, tombstones included, or the whole view. A Delta table
    gets the whole view if its columns differ. A topic that
    this generation has no more gets nothing more. A topic of final results goes on where it stands, since these are of
    no generation. Raises InvalidDefinition for a topic of another view.
    """
    published = dict(_published(layout))
    for topic, view in published.items():
        rows = Rows.of(view)
        filled = _taken(connection, topic, view, group)
        if view.definition.lake == topic and (filled.lost or _has_other_columns(filled.rows_of, rows)):
            _begin_again(connection, group, topic, rows)
        else:
            _add(connection, group, topic, _changed(connection, filled, rows))
            if filled.rows_of != rows.to_json():
                _add(connection, group, topic, _tombstones(connection, Rows.of_json(filled.rows_of), rows))
        topics = own_tables(connection).topics
        now = sa.update(topics).where(topics.c.topic == topic).values(lost=False, rows_of=rows.to_json())
        connection.execute(now)
    _give_up_others(connection, group, list(published))
    outbox.take_results(connection, group, _of_results(layout))


def _taken(connection: sa.Connection, topic: str, view: ViewLayout, group: str) -> sa.Row[Any]:
    """What the topic holds, locked until the transaction ends; a new one lacks everything."""
    topics = own_tables(connection).topics
    new = {"topic": topic, "group_name": group, "view": view.name, "lost": True, "rows_of": Rows.of(view).to_json()}
    connection.execute(upsert(connection, topics).values(new).on_conflict_do_nothing(index_elements=["topic"]))
    row = connection.execute(sa.select(topics).where(topics.c.topic == topic).with_for_update()).one()
    require_ours(connection, group, rows={topic: view.name})
    return row


def _give_up_others(connection: sa.Connection, group: str, topics: Sequence[str]) -> None:
    tables = own_tables(connection)
    for table in (tables.topics, tables.records):
        connection.execute(sa.delete(table).where(table.c.group_name == group, table.c.topic.not_in(topics)))


def _has_other_columns(stored: Mapping[str, Any], rows: Rows) -> bool:
    """Whether a Delta table has to be written anew for the rows: only its first commit says what columns it has."""
    return any(stored[part] != rows.to_json()[part] for part in ("key", "columns"))


def _begin_again(connection: sa.Connection, group: str, lake: str, rows: Rows) -> None:
    """Leave the whole view to be written, instead of what waits: those records may have other columns."""
    records = own_tables(connection).records
    connection.execute(sa.delete(records).where(records.c.group_name == group, records.c.topic == lake))
    _add(connection, group, lake, sa.select(sa.literal(RESET).label("key"), sa.cast(sa.null(), sa.Text)))
    _add(connection, group, lake, rows.records(connection))


def _changed(connection: sa.Connection, filled: sa.Row[Any], after: Rows) -> sa.SelectBase:
    """The records that the topic lacks; compared as records, since columns and types may have changed."""
    if filled.lost:
        return after.records(connection)
    return sa.except_(after.records(connection), Rows.of_json(filled.rows_of).records(connection))


def _tombstones(connection: sa.Connection, before: Rows, after: Rows) -> sa.SelectBase:
    """A tombstone for each key that is no more."""
    removed = sa.except_(*(sa.select(rows.keys(connection).label("key")) for rows in (before, after))).subquery()
    return sa.select(removed.c.key, sa.null())


def _add(connection: sa.Connection, group: str, topic: str, records: sa.SelectBase) -> None:
    """Append records, given by key and value, whose keys differ."""
    added = records.subquery()
    rows = sa.select(sa.literal(group), sa.literal(topic), *added.c)
    connection.execute(sa.insert(own_tables(connection).records).from_select(_RECORD, rows))


def json_object(connection: sa.Connection, rows: sa.FromClause, columns: Iterable[tuple[str, ColumnType]]) -> Text:
    """An expression over ``rows``: a JSON object of some of their columns, alike for every database that has views.

    View topics hold this form. It has no spaces, and the columns are in the view's order. Numbers are numbers, and a
    decimal is text with all digits of its scale. Bytes are hexadecimal digits. A time is text in UTC with six digits
    and a Z. A double that is no finite number is its name. Lists, maps and records are what their text is.
    """
    spelling = _TYPED if dialect_of(connection).has_exact_types else _OF_TEXTS
    parts: list[Text] = []
    for name, kind in columns:
        spelled = _nested if kind.shape else spelling[kind.kind]
        value = sa.case((rows.c[name].is_(None), "null"), else_=spelled(rows.c[name]))
        parts += [sa.literal(f"{',' if parts else '{'}{json.dumps(name)}:"), value]
    return functools.reduce(operator.add, [*parts, sa.literal("}")])


def _cast(column: sa.ColumnElement[Any]) -> Text:
    return sa.cast(column, sa.Text)


def _nested(column: sa.ColumnElement[Any]) -> Text:
    """A list, a map or a record is stored as its JSON."""
    return sa.type_coerce(column, sa.Text)


def _quoted(text: sa.ColumnElement[Any]) -> Text:
    """Text that needs no escapes."""
    return sa.literal('"') + sa.type_coerce(text, sa.Text) + sa.literal('"')


def _as_json(column: sa.ColumnElement[Any]) -> Text:
    return sa.cast(sa.func.to_json(column), sa.Text)


def _moment(column: sa.ColumnElement[Any]) -> Text:
    return _quoted(sa.func.to_char(sa.func.timezone("UTC", column), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))


_TYPED: Final[_Spelling] = {
    "string": _as_json, "int": _cast, "long": _cast, "double": _as_json, "boolean": _cast,
    "decimal": lambda column: _quoted(_cast(column)),
    "timestamp": _moment,
    "date": lambda column: _quoted(sa.func.to_char(column, "YYYY-MM-DD")),
    "binary": lambda column: _quoted(sa.func.encode(column, "hex")),
}  # fmt: skip


def _double(column: sa.ColumnElement[Any]) -> Text:
    """With as many digits as tell any two doubles apart: SQLite's own JSON has fifteen."""
    infinite = sa.case((column > 0, sa.literal('"Infinity"')), else_=sa.literal('"-Infinity"'))
    finite = sa.func.printf("%!.17g", column)
    return sa.case((sa.func.abs(column) > _LARGEST_DOUBLE, infinite), else_=finite)


_OF_TEXTS: Final[_Spelling] = {
    "string": lambda column: sa.func.json_quote(column),
    "int": _cast, "long": _cast, "double": _double,
    "boolean": lambda column: sa.case((column, "true"), else_="false"),
    "decimal": _quoted,
    "timestamp": lambda column: _quoted(sa.func.replace(column, " ", "T")),
    "date": _quoted,
    "binary": lambda column: _quoted(sa.func.lower(sa.func.hex(column))),
}  # fmt: skip
