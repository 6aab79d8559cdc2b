"""Debezium's records decoded to typed changes of one table."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cdc.changes import rules
from cdc.changes.change_records import (
    AVRO_MAGIC,
    CAUSE,
    Lookup,
    RecordReader,
    SourcePosition,
    avro_names,
    fields_of,
    is_number,
    is_unavailable,
    nullable_columns,
    placeholder_of,
    position_of,
    remedy_of,
)
from cdc.changes.column_readers import Reader, leaves_nulls, reader_for
from cdc.changes.semantic_types import Form
from cdc.errors import UndecodableChange, UnsupportedEncoding

if TYPE_CHECKING:
    from sqlalchemy import Table

Row = Mapping[str, Any]
Readers = Mapping[str, Reader]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Op(StrEnum):
    """What happened: to a row, to the whole table (TRUNCATE), or nothing but a word in the log (MESSAGE).

    TOMBSTONE is the null record that follows a DELETE.

    Examples:
        >>> [change.key for change in changes if change.op is Op.DELETE]
        [{'id': 7}]
    """

    INSERT = rules.OP_INSERT
    UPDATE = rules.OP_UPDATE
    DELETE = rules.OP_DELETE
    SNAPSHOT = rules.OP_SNAPSHOT
    TRUNCATE = rules.OP_TRUNCATE
    MESSAGE = rules.OP_MESSAGE
    TOMBSTONE = "tombstone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """One change of one row.

    A changed primary key is two changes: a delete of the old row, an insert of the new one.

    Attributes:
        op: What happened.
        key: The key columns. A truncation has none.
        before: The old row: only its key columns, unless the table has REPLICA IDENTITY FULL and the decoder expects
            that.
        after: The new row, without the columns in `unavailable`.
        unavailable: Columns that the update left unchanged and the log does not repeat.
        position: The place in the source's log. A tombstone has none and takes that of its key's previous record.
        time: The time of the commit.

    Examples:
        >>> change = ChangeDecoder(Customer).decode(record.key, record.value, offset=record.offset)
        >>> change.op, change.key, change.removes
        (<Op.DELETE: 'd'>, {'id': 7}, True)
    """

    op: Op
    key: Row
    before: Row | None = None
    after: Row | None = None
    unavailable: frozenset[str] = field(default_factory=frozenset)
    position: SourcePosition | None = None
    time: datetime | None = None

    @property
    def removes(self) -> bool:
        """Whether the row is deleted after this change, or all rows are."""
        return self.after is None

    def completed(self, stored: Row | None) -> dict[str, Any]:
        """Return the whole row after this change, with unavailable columns from the stored row.

        Raises UndecodableChange if the change removes the row, or if an unavailable column has no stored row.
        """
        if self.after is None:
            raise _undecodable(f"a {self.op.name.lower()} leaves no row", "ask `removes` first", None)
        if self.unavailable and stored is None:
            raise _undecodable(
                f"columns {sorted(self.unavailable)} are not in the change and no earlier row is known",
                "read the topic from its beginning, or give the table REPLICA IDENTITY FULL",
                None,
            )
        return {**self.after, **{name: (stored or {})[name] for name in self.unavailable}}


class ChangeDecoder:
    """Decodes the records of one table's changelog topic: JSON with or without schemas, or Avro.

    PostgreSQL's infinite dates and times become Python's first and last ones.

    Args:
        model: A SQLAlchemy table or mapped class, which gives the columns and the key. Other columns are left out.
        full_identity: The table has REPLICA IDENTITY FULL. Without it the log has only the old key, and Debezium fills
            required columns with defaults that look like values.
        schemas: Finds the schemas of Avro records by their ids.
        null_if_absent: Columns that are null if a row lacks them. Another missing column is an error.

    Raises:
        UndecodableChange: A record is no change of the table. Raised by `decode`.
        UnsupportedEncoding: The values of a column could be read in two ways.
        InvalidConnector: A column of `null_if_absent` may not be null.

    Examples:
        >>> decoder = ChangeDecoder(Customer)
        >>> decoder.decode(record.key, record.value, offset=record.offset).after
        {'id': 7, 'name': 'Ann'}
    """

    def __init__(
        self,
        model: Any,
        *,
        full_identity: bool = False,
        schemas: Lookup | None = None,
        null_if_absent: Collection[str] = (),
    ) -> None:
        table: Table = getattr(model, "__table__", model)
        self._name = str(table)
        self._columns = {column.name: column for column in table.columns}
        self._readers: dict[str, Reader] = {name: reader_for(column) for name, column in self._columns.items()}
        self._required = {column.name for column in table.columns if not column.nullable}
        self._key = tuple(column.name for column in table.primary_key)
        absent = nullable_columns(table, null_if_absent, self._columns)
        self._never_absent = self._columns.keys() - absent - set(self._key)
        self._certain_before = tuple(self._readers) if full_identity else self._key
        self._keys, self._values = RecordReader("key", schemas), RecordReader("value", schemas)
        self._described: dict[int, Readers] = {}
        if not full_identity:
            self._require_marks()
        self._in_avro = {} if schemas is None else avro_names(self._columns, table=self._name)
        self._from_avro = {avro: name for name, avro in self._in_avro.items() if avro != name}

    def _require_marks(self) -> None:
        for column in self._columns.values():
            if leaves_nulls(column):
                raise UnsupportedEncoding(
                    f"column {column}: an update that leaves a long array of its type alone comes as null",
                    remedy="give the table REPLICA IDENTITY FULL and say full_identity=True, or leave the column out",
                    place=str(column),
                )

    def decode(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        offset: int,
        epoch: int = 0,
        place: str | None = None,
    ) -> ChangeEvent:
        """Decode one record.

        Args:
            key: The record's key.
            value: The record's value.
            offset: The record's offset.
            epoch: The epoch of records that name none.
            place: The address for messages, such as `topic[partition]@offset`.
        """
        at = place or f"offset {offset}"
        if value is None:
            return ChangeEvent(op=Op.TOMBSTONE, key=self._key_row(key, at))
        body, form = self._values.read(value, at)
        position = _position(body, epoch=epoch, offset=offset, place=at)
        if body.get(rules.FIELD_OP) == Op.TRUNCATE:
            return ChangeEvent(op=Op.TRUNCATE, key={}, position=position, time=_time(body, at))
        if body.get(rules.FIELD_OP) == Op.MESSAGE:
            raise _undecodable("a message of the log is no change of a row", "read it with cdc.decode_message", at)
        row, before = (self._row(body, part, value, at) for part in (rules.FIELD_AFTER, rules.FIELD_BEFORE))
        op = _op(body, row is not None, at)
        key_row = self._key_row(key, at)
        readers = self._readers_of(form)
        mark = placeholder_of(body)
        after, unavailable = self._after(row, key_row, readers, mark, at)
        return ChangeEvent(
            op=op,
            key=key_row,
            before=self._before(before, readers, mark, at),
            after=after,
            unavailable=unavailable,
            position=position,
            time=_time(body, at),
        )

    def _readers_of(self, form: Form | None, part: str | None = rules.FIELD_AFTER) -> Readers:
        """The readers of rows, or of keys; made once for each form that the topic's records have had."""
        if form is None:
            return self._readers
        if id(form) not in self._described:  # a form is one object, and lives as long as its reader
            self._described[id(form)] = self._made_for(fields_of(form, part))
        return self._described[id(form)]

    def _made_for(self, fields: Mapping[str, Form]) -> Readers:
        forms = {name: fields.get(name, fields.get(self._in_avro.get(name, name))) for name in self._columns}
        return {name: reader_for(column, forms[name]) for name, column in self._columns.items()}

    def _row(self, body: Mapping[str, Any], part: str, value: bytes, place: str) -> Row | None:
        row = body.get(part)
        if row is not None and not isinstance(row, dict):
            raise _undecodable(f"the record's `{part}` is no row", "check which writer fills this topic", place)
        return None if row is None else self._named(row, value)

    def _named(self, row: Row, data: bytes) -> Row:
        """The row by the names of its columns, which Avro may have had to change."""
        if not self._from_avro or data[:1] != AVRO_MAGIC:
            return row
        return {self._from_avro.get(name, name): value for name, value in row.items()}

    def _key_row(self, key: bytes | None, place: str) -> dict[str, Any]:
        if key is None:
            raise _undecodable("the record has no key", "give the table a primary key", place)
        content, form = self._keys.read(key, place)
        body = self._named(content, key)
        missing = [name for name in self._key if body.get(name) is None]
        if missing:
            raise _undecodable(
                f"the key lacks {missing} of table {self._name}", "read this topic with its own table", place
            )
        readers = self._readers_of(form, None)
        return {name: self._value(name, body[name], readers, place) for name in self._key}

    def _after(
        self, row: Row | None, key: Row, readers: Readers, mark: str, place: str
    ) -> tuple[dict[str, Any] | None, frozenset[str]]:
        if row is None:
            return None, frozenset()
        self._require_columns(row, place)
        away = frozenset(name for name in readers if is_unavailable(row.get(name), mark))
        known = {name: key[name] for name in away if name in key}  # the record's key has all of its columns
        present = [name for name in readers if name not in away]
        for name in present:
            if row.get(name) is None and name in self._required:
                raise _undecodable(
                    f"column {name!r} of table {self._name} must have a value and the record has none",
                    "compare the declared table with the database's",
                    place,
                )
        return known | {name: self._value(name, row.get(name), readers, place) for name in present}, away - key.keys()

    def _require_columns(self, row: Row, place: str) -> None:
        if lacking := self._never_absent - row.keys():
            names = [name for name in self._columns if name in lacking]
            cause = CAUSE.format(columns=", ".join(names), table=f"table {self._name}")
            raise _undecodable(cause, remedy_of(names, self._name), place)

    def _before(self, row: Row | None, readers: Readers, mark: str, place: str) -> dict[str, Any] | None:
        if row is None:
            return None
        there = (name for name in self._certain_before if name in row)
        known = (name for name in there if name in self._key or not is_unavailable(row[name], mark))
        return {name: self._value(name, row[name], readers, place) for name in known}

    def _value(self, name: str, value: Any, readers: Readers, place: str) -> Any:
        if value is None:
            return None
        try:
            return readers[name](value)
        except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
            raise _undecodable(
                f"column {name!r} of table {self._name} cannot hold {str(value)[:60]!r}",
                "compare the declared type with the database's. In JSON without schemas dates, times and decimals must "
                "arrive as text (time.precision.mode=isostring, decimal.handling.mode=string)",
                place,
            ) from error


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A message that a service wrote into its database's log with `pg_logical_emit_message`.

    Examples:
        >>> message = decode_message(record.value, offset=record.offset)
        >>> message.prefix, message.content
        ('audit', b'order o1 paid')
    """

    prefix: str
    content: bytes
    position: SourcePosition
    time: datetime | None


def decode_message(
    value: bytes, *, offset: int, schemas: Lookup | None = None, epoch: int = 0, place: str | None = None
) -> LogMessage:
    """Decode a record of a connector's topic `{topic_prefix}.message`. Raises UndecodableChange for another record.

    Examples:
        >>> decode_message(record.value, offset=record.offset).content
        b'order o1 paid'
    """
    at = place or f"offset {offset}"
    body, form = RecordReader("value", schemas).read(value, at)
    message = body.get("message")
    if body.get(rules.FIELD_OP) != Op.MESSAGE or not isinstance(message, dict):
        raise _undecodable("the record is no message of a log", "read the topic with the table it is of", at)
    content_form = fields_of(form, "message").get("content")
    if content_form is not None and content_form.type == "string":
        raise _undecodable("a message comes as text in an unknown form", "set binary.handling.mode=bytes", at)
    return LogMessage(
        prefix=str(message.get("prefix") or ""),
        content=_content(message.get("content") or b"", at),
        position=_position(body, epoch=epoch, offset=offset, place=at),
        time=_time(body, at),
    )


def _content(content: Any, place: str) -> bytes:
    try:
        return content if isinstance(content, bytes) else base64.b64decode(content, validate=True)
    except (ValueError, TypeError) as error:
        raise _undecodable("a message's content is no base64", "check which writer fills this topic", place) from error


_OPS = {op.value: op for op in Op if op is not Op.TOMBSTONE}


def _op(body: Mapping[str, Any], has_after: bool, place: str) -> Op:
    try:
        op = _OPS[body[rules.FIELD_OP]]
    except (LookupError, TypeError) as error:
        raise _undecodable(
            f"operation {body.get(rules.FIELD_OP)!r} is none of {', '.join(_OPS)}", "upgrade Factfold", place
        ) from error
    if has_after != (op is not Op.DELETE):
        raise _undecodable(f"a {op.name.lower()} must not stand with such an `after`", "see the record", place)
    return op


def _position(body: Mapping[str, Any], *, epoch: int, offset: int, place: str) -> SourcePosition:
    try:
        position = position_of(body, epoch=epoch, offset=offset)
    except ValueError as error:
        raise _undecodable(f"the record's position is no number: {error}", "see the record", place) from error
    if position is None:
        raise _undecodable(
            "the record is no change event of PostgreSQL or MySQL: it has no source.lsn, and no source.file and pos",
            "check which writer fills this topic",
            place,
        )
    return position


def _time(body: Mapping[str, Any], place: str) -> datetime | None:
    millis = body["source"].get("ts_ms")
    try:
        if not (millis is None or is_number(millis)):
            raise ValueError("no whole number")
        return _EPOCH + timedelta(milliseconds=millis) if millis else None
    except (OverflowError, ValueError) as error:
        raise _undecodable(f"the record's time {str(millis)[:60]!r} is none", "see the record", place) from error


def _undecodable(message: str, remedy: str, place: str | None) -> UndecodableChange:
    return UndecodableChange(message, remedy=remedy, place=place)
