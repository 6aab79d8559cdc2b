"""Debezium's JSON records decoded to typed changes of one table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cdc import rules
from cdc.column_types import Reader, reader_for
from cdc.errors import UndecodableChange

if TYPE_CHECKING:
    from sqlalchemy import Table

Row = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Op(StrEnum):
    """What happened to the row; TOMBSTONE is the null record that follows a DELETE."""

    INSERT = rules.OP_INSERT
    UPDATE = rules.OP_UPDATE
    DELETE = rules.OP_DELETE
    SNAPSHOT = rules.OP_SNAPSHOT
    TOMBSTONE = "tombstone"


@dataclass(frozen=True, slots=True, order=True)
class SourcePosition:
    """The place of a change among the changes of its key: the greater one is newer.

    `epoch` counts the source's lives (another system identifier or timeline, or a new snapshot that has to
    win) and comes from the reader. Snapshot rows (`streamed` False) lose to every streamed change of their
    epoch.
    """

    epoch: int
    streamed: bool
    lsn: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """One change of one row.

    `after` lacks the columns named in `unavailable`: the update left them alone and the log does not repeat
    them. `before` holds the key columns only, unless the table has REPLICA IDENTITY FULL and the decoder was
    told so. A tombstone has a key and no position: it takes that of its key's previous record.
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
        """Whether the row is gone after this change."""
        return self.after is None

    def completed(self, stored: Row | None) -> dict[str, Any]:
        """Return the whole row after this change, unavailable columns from the stored; UndecodableChange."""
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
    """Decodes the records of one table's changelog topic; columns and key come from the SQLAlchemy table.

    Columns that the table does not declare are left out. `full_identity` says that the table has REPLICA
    IDENTITY FULL: without it the log has no old values but the key's, and Debezium fills columns that may not
    be null with defaults that look like values. Raises UndecodableChange with the record's place,
    UnsupportedEncoding for a column type that has no self-describing form.
    """

    def __init__(self, table: Table, *, full_identity: bool = False) -> None:
        self._name = str(table)
        self._readers: dict[str, Reader] = {column.name: reader_for(column) for column in table.columns}
        self._required = {column.name for column in table.columns if not column.nullable}
        self._key = tuple(column.name for column in table.primary_key)
        self._certain_before = tuple(self._readers) if full_identity else self._key

    def decode(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        offset: int,
        epoch: int = 0,
        place: str | None = None,
    ) -> ChangeEvent:
        """Decode one record; `place` is its address for messages, such as `topic[partition]@offset`."""
        at = place or f"offset {offset}"
        key_row = self._key_row(key, at)
        if value is None:
            return ChangeEvent(op=Op.TOMBSTONE, key=key_row)
        body = _object(value, "value", at)
        source = _source(body, at)
        after, unavailable = self._after(body.get(rules.FIELD_AFTER), at)
        return ChangeEvent(
            op=_op(body, after is not None, at),
            key=key_row,
            before=self._before(body.get(rules.FIELD_BEFORE), at),
            after=after,
            unavailable=unavailable,
            position=_position(source, epoch=epoch, offset=offset, place=at),
            time=_EPOCH + timedelta(milliseconds=source["ts_ms"]) if source.get("ts_ms") else None,
        )

    def _key_row(self, key: bytes | None, place: str) -> dict[str, Any]:
        if key is None:
            raise _undecodable("the record has no key", "give the table a primary key", place)
        body = _object(key, "key", place)
        missing = [name for name in self._key if name not in body]
        if missing:
            raise _undecodable(
                f"the key lacks {missing} of table {self._name}", "read this topic with its own table", place
            )
        return {name: self._value(name, body[name], place) for name in self._key}

    def _after(self, row: Any, place: str) -> tuple[dict[str, Any] | None, frozenset[str]]:
        if row is None:
            return None, frozenset()
        away = frozenset(name for name in self._readers if _is_unavailable(row.get(name)))
        present = [name for name in self._readers if name not in away]
        for name in present:
            if row.get(name) is None and name in self._required:
                raise _undecodable(
                    f"column {name!r} of table {self._name} must have a value and the record has none",
                    "compare the declared table with the database's",
                    place,
                )
        return {name: self._value(name, row.get(name), place) for name in present}, away

    def _before(self, row: Any, place: str) -> dict[str, Any] | None:
        if row is None:
            return None
        known = (name for name in self._certain_before if name in row and not _is_unavailable(row[name]))
        return {name: self._value(name, row[name], place) for name in known}

    def _value(self, name: str, value: Any, place: str) -> Any:
        if value is None:
            return None
        try:
            return self._readers[name](value)
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            raise _undecodable(
                f"column {name!r} of table {self._name} cannot hold {str(value)[:60]!r}",
                "compare the declared type with the database's; dates, times and decimals must arrive as "
                "text (time.precision.mode=isostring, decimal.handling.mode=string)",
                place,
            ) from error


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, list):
        return value == [rules.UNAVAILABLE] or tuple(value) == rules.UNAVAILABLE_CODES
    return value in (rules.UNAVAILABLE, rules.UNAVAILABLE_BASE64)


def _object(data: bytes, part: str, place: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _undecodable(f"the record's {part} is not JSON", "check which writer fills this topic", place) from error
    if not isinstance(body, dict):
        raise _undecodable(f"the record's {part} is no JSON object", "check which writer fills this topic", place)
    if body.keys() == {"schema", "payload"}:
        raise _undecodable(
            f"the record's {part} carries a schema, its values are in another encoding",
            "set key.converter.schemas.enable and value.converter.schemas.enable to false",
            place,
        )
    return body


def _source(body: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    source = body.get("source")
    if isinstance(source, dict) and isinstance(source.get("lsn"), int):
        return source
    raise _undecodable(
        "the record is no change event of a PostgreSQL source: it has no source.lsn",
        "check which writer fills this topic",
        place,
    )


def _op(body: Mapping[str, Any], has_after: bool, place: str) -> Op:
    try:
        op = Op(str(body.get(rules.FIELD_OP)))
    except ValueError as error:
        raise _undecodable(
            f"operation {body.get(rules.FIELD_OP)!r} is none of {', '.join(Op)}", "upgrade Factfold", place
        ) from error
    if has_after != (op is not Op.DELETE):
        raise _undecodable(f"a {op.name.lower()} must not stand with such an `after`", "see the record", place)
    return op


def _position(source: Mapping[str, Any], *, epoch: int, offset: int, place: str) -> SourcePosition:
    streamed = source.get("snapshot", rules.STREAMED) in (rules.STREAMED, None, False)
    return SourcePosition(epoch, streamed, source["lsn"], offset)


def _undecodable(message: str, remedy: str, place: str | None) -> UndecodableChange:
    return UndecodableChange(message, remedy=remedy, place=place)
