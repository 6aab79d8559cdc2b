"""Row changes of a SQLite table, captured by triggers: a changelog without Debezium.

A trigger writes each change in the transaction that makes it, in the form of Debezium's change event with our
connectors' encodings. Every reader of changelogs reads these.

Columns of a SQLite table as JSON text, by SQL: the forms that Debezium gives them under our connectors' settings.

SQLite keeps what it is given, whatever the column says. A value that is not of the column's type goes out as the text
it is, and the reader refuses it with its place; a trigger never makes the user's own statement fail.

It imports the room changes. It never knows Kafka Connect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from cdc.changes.change_records import own_placeholder
from cdc.changes.column_readers import python_type_of
from cdc.changes.rules import FIELD_UNAVAILABLE, OP_DELETE, OP_INSERT, OP_SNAPSHOT, OP_UPDATE, STREAMED
from cdc.errors import InvalidConnector, SourceNotReady, UnsupportedEncoding
from cdc.identifiers import check_identifier, check_name, quoted
from eventstore.identifiers import check_topic, require_like
from eventstore.shown_urls import shown_url

if TYPE_CHECKING:
    from sqlalchemy import Column, Connection, Engine, Table

Expression = Callable[[str], str]

# SQLAlchemy hands SQLite a Decimal as a double, which keeps 15 digits and no more.
_DOUBLE_DIGITS: Final = 15


def json_of(column: Column[Any]) -> Expression:
    """Return what turns a column's SQL into SQL of its JSON text, never null; UnsupportedEncoding for other types."""
    kind: Any = column.type
    name = str(kind.__visit_name__)
    if name.lower() == "uuid":
        return _UUID.format
    if name in ("JSON", "JSONB"):
        return _TEXT.format
    python_type = python_type_of(kind)
    if python_type is not None and python_type in _ZONED and kind.timezone:
        return _zoned(column, python_type)
    if python_type is Decimal:
        return _decimal(column)
    if isinstance(python_type, type) and issubclass(python_type, Enum):
        return _TEXT.format
    form = _FORMS.get(python_type) if python_type else None
    if form is None:
        raise _unsupported(
            column, "which has no form in a trigger's JSON", "leave the column out of the captured table"
        )
    return form.format


def _unsupported(column: Column[Any], why: str, remedy: str) -> UnsupportedEncoding:
    return UnsupportedEncoding(f"column {column} has type {column.type!r}, {why}", remedy=remedy, place=str(column))


def _decimal(column: Column[Any]) -> Expression:
    kind: Any = column.type
    digits, scale = kind.precision, kind.scale or 0
    if kind.__visit_name__.lower() not in ("numeric", "decimal") or digits is None or digits > _DOUBLE_DIGITS:
        raise _unsupported(
            column,
            "and SQLite would keep no more than 15 of its digits",
            "declare Numeric(15, 4) or fewer digits, or keep the table in PostgreSQL",
        )

    plain = f"""'"' || printf('%.{scale:d}f', {{0}}) || '"'"""
    return f"CASE WHEN typeof({{0}}) IN ('real', 'integer') THEN {plain} ELSE {_TEXT} END".format


def _zoned(column: Column[Any], python_type: type) -> Expression:
    """Refuse a type that writes 12:00+02:00 as 12:00, as those of SQLAlchemy do on SQLite."""
    form, sample = _ZONED[python_type]
    from eventstore.backends.sql.values import read_back  # SQLAlchemy is loaded when it is first used

    if read_back(column.type, sample) not in (sample, None):
        raise _unsupported(
            column,
            "which loses the offset of its values on SQLite",
            "declare the column as cdc.UtcDateTime(), which stores UTC"
            if python_type is datetime
            else "declare the column as Text or as Time without time zone",
        )
    return form.format


def dashed(x: str) -> str:
    """Return SQL of the text of a UUID, of which SQLAlchemy writes the 32 digits."""
    parts = " || '-' || ".join(f"substr({x}, {start}, {length})" for start, length in _UUID_PARTS)
    return f"lower({parts})"


def _z_unless_offset(first: int) -> str:
    return f"CASE WHEN substr(CAST({{0}} AS TEXT), {first}) GLOB '*[-+Zz]*' THEN '' ELSE 'Z' END"


_UUID_PARTS: Final = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
_TEXT: Final = "json_quote(CAST({0} AS TEXT))"
_UUID: Final = f"CASE WHEN length({{0}}) = 32 THEN json_quote({dashed('{0}')}) ELSE {_TEXT} END"
# SQLAlchemy writes a date and a time with a space between and without zone; Debezium has a T there, and a Z behind.
_WITH_T: Final = "replace(CAST({0} AS TEXT), ' ', 'T')"
_DAY: Final = "json_quote(CAST({0} AS TEXT) || 'Z')"
_EAST: Final = timezone(timedelta(hours=2))
# A time that has no offset is UTC; one that has keeps it.
_ZONED: Final[dict[type | None, tuple[str, Any]]] = {
    datetime: (f"json_quote({_WITH_T} || {_z_unless_offset(11)})", datetime(2024, 1, 2, 3, 4, 5, 6, _EAST)),
    time: (f"json_quote(CAST({{0}} AS TEXT) || {_z_unless_offset(1)})", time(3, 4, 5, 6, _EAST)),
}
_FORMS: Final[dict[type, str]] = {
    str: _TEXT,
    int: f"CASE typeof({{0}}) WHEN 'integer' THEN CAST({{0}} AS TEXT) ELSE {_TEXT} END",
    bool: f"CASE {{0}} WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE {_TEXT} END",
    # Seventeen digits name a double exactly; JSON has no infinity.
    float: "CASE WHEN typeof({0}) IN ('real', 'integer') AND abs({0}) < 9e999 THEN printf('%!.17g', {0})"
    f" WHEN {{0}} = 9e999 THEN '\"Infinity\"' WHEN {{0}} = -9e999 THEN '\"-Infinity\"' ELSE {_TEXT} END",
    datetime: f"json_quote({_WITH_T} || 'Z')",
    date: _DAY,
    time: _DAY,
    UUID: _UUID,
}


_CHANGES: Final = "factfold_changes"
_RESPELLED: Final = "factfold_respelled"
# The position of the next change: no other writer gets in before its transaction ends. SQLite advances its count at the
# end of a statement: within one, the changes themselves tell; after their removal, the count does. Rows of a snapshot
# share one, and each is of another key.
_NEXT: Final = (
    f"(SELECT max(coalesce(max(position), 0), coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{_CHANGES}'), 0))"  # noqa: S608
    f" + 1 FROM {_CHANGES})"
)
# Rounded: a Julian day as a double is up to some hundredths of a millisecond off the whole millisecond.
_NOW_MS: Final = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


def capture_table(engine: Engine, model: Any, *, topic: str) -> bool:
    """Publish every change of a SQLite table from now on. Its current rows come first, as a snapshot.

    Calling it again changes nothing and returns False, unless columns or triggers differ: then the table is captured
    again. Two changes are not seen: rows that INSERT OR REPLACE removes for a unique column other than the key, and a
    dropped table.

    Args:
        engine: The SQLite file.
        model: A SQLAlchemy table or mapped class. Its columns are captured, and its primary key is the record's key.
        topic: The topic that readers name.

    Raises:
        InvalidConnector: There is no primary key, no SQLite, or the table or topic is captured otherwise.
        SourceNotReady: The table or a column is missing.
        UnsupportedEncoding: A column's type has no form in records. InvalidIdentifier: a name is wrong.
        StoreUnavailable: The file is locked.

    Examples:
        >>> capture_table(engine, Customer, topic="shop.public.customers")
        True
    """
    require_like(engine, "dialect", "engine", takes="an Engine of SQLAlchemy")
    from eventstore.backends.sql.changes import changing  # SQLAlchemy is loaded when it is first used

    table = getattr(model, "__table__", model)
    require_like(table, "primary_key", "model", takes="a table of SQLAlchemy, or a mapped class")
    captured = _Captured.of(table, check_topic(topic))
    _require_sqlite(engine)
    with changing(engine) as connection:
        captured.require_columns(connection)
        captured.require_own_topic(connection)
        captured = captured.collated(connection)
        if captured.stands(connection):
            return False
        for statement in captured.statements(first=captured.is_new(connection)):
            connection.exec_driver_sql(statement)
        return True


def read_again(connection: Connection, table: str, *, where: str, values: Collection[Any]) -> None:
    """Write the rows of a condition into the changelog once more, as the table's trigger writes an inserted row.

    ``where`` has one place, for ``values`` as a JSON array. Raises SourceNotReady if the trigger is missing.
    """
    query = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?"
    trigger = connection.exec_driver_sql(query, (f"factfold_{table}_insert",)).scalar()
    if trigger is None:
        raise SourceNotReady(
            f"table {table!r} is no longer captured: its triggers are missing",
            remedy="capture it again, which reads all of its rows: cdc.capture_table(engine, model, topic=…)",
            place=table,
        )
    made = trigger[trigger.rindex(f"INSERT INTO {_CHANGES} ") :]
    rows = f" FROM {quoted(table)} WHERE "
    connection.exec_driver_sql(f"{made[: made.rindex(rows)]}{rows}{where}", (json.dumps(list(values)),))


def delete_again(connection: Connection, table: str, topic: str, message_keys: Collection[str]) -> None:
    """Write deletions of keys, which the table does not have, into the changelog."""
    captured = _Captured(table, topic, {}, ())
    for key in message_keys:
        for statement in captured.deletions():
            connection.exec_driver_sql(statement, (key,))


@dataclass(frozen=True)
class _Captured:
    """A table and its topic, as SQL."""

    table: str
    topic: str
    columns: dict[str, Callable[[str], str]]
    key: Sequence[str]
    # Of each unique index of the key that takes different keys for equal: the collations of the key's columns.
    collations: Sequence[Mapping[str, str]] = ()

    @classmethod
    def of(cls, table: Table, topic: str) -> _Captured:
        check_identifier(table.name, "table")
        if table.schema is not None or not table.primary_key.columns:
            raise InvalidConnector(
                f"table {table} cannot be captured: it {'is in a schema' if table.schema else 'has no primary key'}",
                remedy="capture a table of the file itself, with a primary key",
                place=str(table),
            )
        columns = {check_name(column.name, "column"): json_of(column) for column in table.columns}
        return cls(table.name, topic, columns, [column.name for column in table.primary_key])

    def collated(self, connection: Connection) -> _Captured:
        """The same with the collations under which keys are unique in the file."""
        query = (
            "SELECT i.name, x.name, x.coll FROM pragma_index_list(?) i, pragma_index_xinfo(i.name) x"
            ' WHERE i."unique" AND x."key"'
        )
        indexes: dict[str, dict[str, str]] = {}
        for index, column, collation in connection.exec_driver_sql(query, (self.table,)):
            indexes.setdefault(index, {})[column] = collation
        ours = [of for of in indexes.values() if set(of) == set(self.key) and set(of.values()) != {"BINARY"}]
        return replace(self, collations=ours)

    def is_new(self, connection: Connection) -> bool:
        """Whether the topic has no change yet."""
        query = f"SELECT NOT EXISTS (SELECT 1 FROM {_CHANGES} WHERE topic = ?)"  # noqa: S608
        return bool(connection.exec_driver_sql(query, (self.topic,)).scalar_one())

    def statements(self, *, first: bool) -> Iterator[str]:
        """Replace the triggers, then write the rows as they are, and delete the keys whose rows are missing.

        The rows of a topic's first snapshot are marked as such: since when they were so is not known. Those of a later
        one are marked as streamed: with one writer at a time, the position alone says that they are newer.
        """
        for name in self.triggers():
            yield f"DROP TRIGGER IF EXISTS {quoted(name)}"
        yield from self.triggers().values()
        yield (
            "INSERT INTO factfold_captures (topic, table_name)"  # noqa: S608
            f" VALUES ('{self.topic}', '{self.table}') ON CONFLICT DO NOTHING"
        )
        yield from self._delete_missing()
        rows = self._values(OP_SNAPSHOT, new="", snapshot="first" if first else STREAMED)
        yield self._insert(rows, f"FROM {quoted(self.table)}")

    def triggers(self) -> dict[str, str]:
        """The triggers by their names.

        A trigger of the user's may have fired before ours and written the row again: ours write the row as it is.
        """
        old, new = self._is_here("OLD."), self._is_here("NEW.")
        same_key = f"{self._row('OLD.', self.key)} = {self._row('NEW.', self.key)}"
        row, here = f"{quoted(self.table)}.", f"FROM {quoted(self.table)} WHERE {new}"
        away = f"WHERE NOT EXISTS (SELECT 1 FROM {quoted(self.table)} WHERE {old})"  # noqa: S608
        deletions = [
            self._insert(values, away) for values in (self._values(OP_DELETE, old="OLD."), self._tombstone("OLD."))
        ]
        made = self._insert(self._values(OP_INSERT, new=row), here)
        changed = self._insert(self._values(OP_UPDATE, old="OLD.", new=row), here)
        replaced = self._replaced()
        return dict(
            [
                self._trigger("insert", "AFTER INSERT", "1", *replaced, made),
                self._trigger("update", "AFTER UPDATE", same_key, changed),
                self._trigger("rekey", "AFTER UPDATE", f"NOT ({same_key})", *deletions, *replaced, made),
                self._trigger("delete", "AFTER DELETE", "1", *deletions),
                *self._notes(same_key),
            ]
        )

    def _is_here(self, prefix: str) -> str:
        """The condition that a row of the table has the key of a row before or after the change.

        The first part finds the row by the index of the key; only the second tells keys apart that a collation equates.
        """
        same_key = " AND ".join(f"{quoted(self.table)}.{quoted(c)} IS {prefix}{quoted(c)}" for c in self.key)
        return f"{same_key} AND {self._row(f'{quoted(self.table)}.', self.key)} = {self._row(prefix, self.key)}"

    def _trigger(self, name: str, event: str, when: str, *statements: str) -> tuple[str, str]:
        full = f"factfold_{self.table}_{name}"
        head = f'CREATE TRIGGER "{full}" {event} ON {quoted(self.table)} WHEN {when}'
        return full, f"{head} BEGIN {'; '.join(statements)}; END"

    def _notes(self, same_key: str) -> Iterator[tuple[str, str]]:
        """Before a write, note a row with another spelling of its key: OR REPLACE removes it, and fires no trigger.

        Whether it does is not known yet. A note that is left over stands for a row that is asked for again.
        """
        if not self.collations:
            return
        old, new = self._row(f"{quoted(self.table)}.", self.key), self._row("NEW.", self.key)
        known = f"topic = '{self.topic}' AND new_key = {new} AND old_key = {old}"
        # No OR IGNORE: the clause of the user's statement would take its place.
        note = (
            f"INSERT INTO {_RESPELLED} (topic, new_key, old_key) SELECT '{self.topic}', {new}, {old}"  # noqa: S608
            f" FROM {quoted(self.table)} WHERE ({self._equal_to_new()}) AND {old} <> {new}"
            f" AND NOT EXISTS (SELECT 1 FROM {_RESPELLED} WHERE {known})"
        )
        yield self._trigger("before_insert", "BEFORE INSERT", "1", note)
        yield self._trigger("before_rekey", "BEFORE UPDATE", f"NOT ({same_key})", note)

    def _replaced(self) -> list[str]:
        """After a write, delete the rows that were noted before it and are not in the table any more."""
        if not self.collations:
            return []
        noted = f"topic = '{self.topic}' AND new_key = {self._row('NEW.', self.key)}"
        here = f"({self._equal_to_new()}) AND {self._row(f'{quoted(self.table)}.', self.key)} = old_key"
        away = f"FROM {_RESPELLED} WHERE {noted} AND NOT EXISTS (SELECT 1 FROM {quoted(self.table)} WHERE {here})"  # noqa: S608
        return [
            self._insert(f"'{self.topic}', old_key, {self._deletion()}", away),
            self._insert(f"'{self.topic}', old_key, NULL", away),
            f"DELETE FROM {_RESPELLED} WHERE {noted}",  # noqa: S608
        ]

    def _equal_to_new(self) -> str:
        """The condition that the key of a row of the table is taken for that of the row that is written."""
        return " OR ".join(
            " AND ".join(f"{quoted(self.table)}.{quoted(c)} = NEW.{quoted(c)} COLLATE {of[c]}" for c in self.key)
            for of in self.collations
        )

    def _insert(self, values: str, rows: str) -> str:
        return f"INSERT INTO {_CHANGES} (topic, message_key, payload) SELECT {values} {rows}"

    def _values(self, op: str, *, old: str | None = None, new: str | None = None, snapshot: str = STREAMED) -> str:
        """Topic, key and change event; `old` and `new` are what stands before the columns of a row."""
        before = "'null'" if old is None else self._row(old, self.columns)
        after = "'null'" if new is None else self._row(new, self.columns)
        event = f"'{{\"before\":' || {before} || ',\"after\":' || {after} || ',\"source\":' || {self._source(snapshot)}"
        key = self._row(str(old if new is None else new), self.key)
        # No value is ever missing here, and a user's own text must not be taken for Debezium's word for one.
        mark = own_placeholder(self.topic, self.table)
        return f'\'{self.topic}\', {key}, {event} || \',"op":"{op}","{FIELD_UNAVAILABLE}":"{mark}"}}\''

    def _source(self, snapshot: str = STREAMED) -> str:
        """Where and when the change was made: its position, and milliseconds since 1970."""
        fields = f'"snapshot":"{snapshot}","table":"{self.table}"'
        return f"'{{\"lsn\":' || {_NEXT} || ',{fields},\"ts_ms\":' || {_NOW_MS} || '}}'"

    def _tombstone(self, old: str) -> str:
        return f"'{self.topic}', {self._row(old, self.key)}, NULL"

    def _row(self, prefix: str, names: Sequence[str] | dict[str, Any]) -> str:
        """A JSON object; put together by hand, since json_object takes no more than fifty columns."""
        parts = [f"{_member(name)} || {self.columns[name](prefix + quoted(name))}" for name in names]
        return "'{' || " + " || ',' || ".join(parts) + " || '}'"

    def _delete_missing(self) -> Iterator[str]:
        """Delete the keys that live in the topic and not in the table: it was dropped, or its triggers were."""
        last = (
            f"SELECT message_key, payload, max(position) FROM {_CHANGES}"  # noqa: S608
            f" WHERE topic = '{self.topic}' GROUP BY message_key"
        )
        here = f"SELECT {self._row('', self.key)} FROM {quoted(self.table)}"  # noqa: S608
        live = f"FROM ({last}) WHERE payload IS NOT NULL AND message_key NOT IN ({here})"
        yield self._insert(f"'{self.topic}', message_key, {self._deletion()}", live)

    def deletions(self) -> Iterator[str]:
        """What deletes a key: a change event and a tombstone; each has one place, for the key of the record."""
        yield self._insert(f"'{self.topic}', ?, {self._deletion()}", "")
        yield self._insert(f"'{self.topic}', ?, NULL", "")

    def _deletion(self) -> str:
        """A change event for a row of which only the key is known any more."""
        return f'\'{{"before":null,"after":null,"op":"{OP_DELETE}","source":\' || {self._source()} || \'}}\''

    def stands(self, connection: Connection) -> bool:
        """Whether exactly these triggers are there already."""
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
        existing = {name: sql for name, sql in connection.exec_driver_sql(query, (self.table,))}
        expected = self.triggers()
        return {name: existing.get(name) for name in expected} == expected

    def require_columns(self, connection: Connection) -> None:
        """Raise SourceNotReady unless the table is there with its columns."""
        existing = {
            row[0] for row in connection.exec_driver_sql("SELECT name FROM pragma_table_info(?)", (self.table,))
        }
        missing = [name for name in self.columns if name not in existing]
        if missing:
            raise SourceNotReady(
                f"table {self.table!r} {'lacks ' + ', '.join(missing) if existing else 'does not exist'}",
                remedy="create the table, or bring it up to its model, before capturing it",
                place=self.table,
            )

    def require_own_topic(self, connection: Connection) -> None:
        """Raise InvalidConnector where the topic is another table's, or the table's is another topic."""
        query = "SELECT table_name, topic FROM factfold_captures WHERE topic = ? OR table_name = ?"
        for table, topic in connection.exec_driver_sql(query, (self.topic, self.table)):
            if (table, topic) != (self.table, self.topic):
                raise InvalidConnector(
                    f"table {table!r} is captured under topic {topic!r} already",
                    remedy="use another name: each table has one topic, and each topic one table",
                    place=self.topic,
                )


def _member(name: str) -> str:
    """What stands before a value in a JSON object, as text in SQL."""
    return f"{json.dumps(name, ensure_ascii=False)}:".replace("'", "''").join("''")


def _require_sqlite(engine: Engine) -> None:
    if engine.dialect.name != "sqlite":
        raise InvalidConnector(
            f"triggers capture tables of SQLite, not of {engine.dialect.name}",
            remedy="declare a PostgresSource for Debezium",
            place=shown_url(engine.url),
        )
