"""The bytes of a topic's record → the object they hold, and what its schema says of the fields, if it has one.

Columns that a model declares, in records: their names in Avro, and those that a row does not have.

A record that has the column says what its value is, NULL too. One that lacks it says nothing: the column was dropped or
renamed in the source, the connector leaves it out, or it was added after the record was written, with a default or
without. None of these is NULL unless the reader says that it is.

Where a change stands in its source, as numbers that order the changes of one key.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from uuid import UUID

from cdc.changes import rules
from cdc.changes.semantic_types import Form
from cdc.errors import InvalidConnector, UndecodableChange, UnsupportedEncoding
from eventstore.errors import FactfoldError
from eventstore.fields.serialization import AvroDecoder
from eventstore.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    from sqlalchemy import Column, Table

CAUSE: Final = (
    "the record has no column {columns}, which {table} declares: the column was dropped or renamed in the source, is "
    "not captured, or is newer than the record"
)
_IF_NULL: Final = "if such rows have NULL in it, declare null_if_absent=[{columns}]"
_NO_AVRO = re.compile(r"[^A-Za-z0-9_]")
_BASIC_PLANE: Final = 0xFFFF
# The setting of a connector for its placeholder.
SETTING: Final = "unavailable.value.placeholder"
_DIGITS: Final = 32  # hexadecimal ones: 128 bits


def nullable_columns(table: Table, names: Iterable[str], columns: Mapping[str, Column[Any]]) -> frozenset[str]:
    """Return the columns that are null in a row that lacks them; ``columns`` are the table's by their names.

    Raises InvalidConnector for a column that the model does not have, of its key, or that is NOT NULL.
    """
    known = {name for name, column in columns.items() if column.nullable and not column.primary_key}
    for name in names:
        if name not in known:
            raise InvalidConnector(
                f"null_if_absent names {name!r}, which is no nullable column of table {table}",
                remedy="name columns outside the key that the model declares as nullable",
                place=f"{table}.{name}",
            )
    return frozenset(names)


def remedy_of(columns: Sequence[str], table: str) -> str:
    """Return what helps a reader of rows: the rows read again have the column."""
    read = f"read the rows again (factfold cdc snapshot take … --table {table}) and rebuild"
    return f"take it out of the model, or {read}; {_declared(columns)}"


def remedy_of_history(columns: Sequence[str]) -> str:
    """Return what helps a reader of all changes: rows that are read again are not what the row was."""
    return f"take it out of the model; {_declared(columns)}"


def _declared(columns: Sequence[str]) -> str:
    return _IF_NULL.format(columns=", ".join(map(repr, columns)))


def avro_name(column: str) -> str:
    """Return a column's name as `field.name.adjustment.mode=avro` writes it, seen on a live connector.

    An underscore replaces each character that Avro does not take, and two replace one outside the basic plane, which
    has two characters in Java. Another one precedes a leading digit.
    """
    name = _NO_AVRO.sub(lambda match: "_" * (1 + (ord(match[0]) > _BASIC_PLANE)), column)
    return f"_{name}" if name[:1].isdigit() else name


def avro_names(columns: Iterable[str], *, table: str) -> dict[str, str]:
    """Return the Avro name of each column; UnsupportedEncoding if two have one name."""
    names: dict[str, str] = {}
    for column in columns:
        name = avro_name(column)
        if (other := names.setdefault(name, column)) != column:
            raise UnsupportedEncoding(
                f"columns {other!r} and {column!r} of table {table} have the same name in Avro: {name}",
                remedy="capture the table as JSON, or leave one of them out (column.exclude.list and the model)",
                place=table,
            )
    return {column: name for name, column in names.items()}


def own_placeholder(*identity: str) -> str:
    """Return a text that no other writer of change events has, and that no user writes by chance.

    Debezium's own text is public, and a user may have written it into a row.
    """
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return f"__factfold_unavailable_{digest[:_DIGITS]}"


def placeholder_of(event: Mapping[str, Any]) -> str:
    """Return the text that a change event was written with.

    Each change event of our connectors names its text. One that names none is of an older or a foreign connector, and
    has Debezium's.
    """
    return str(event.get(rules.FIELD_UNAVAILABLE) or rules.UNAVAILABLE)


def is_unavailable(value: Any, placeholder: str) -> bool:
    """Whether a column's value, as it was sent, stands for one that an update left alone.

    PostgreSQL's write-ahead log lacks such a value if it is stored out of line (TOAST). Debezium sends a text in its
    place, or what it makes of that text for another type. For bytea that is base64, for an array a list of the text.
    For an array of whole numbers it is the codes of its bytes, for one of UUIDs a list of its UUID. For a map it is a
    map of the text to itself. An array of any other type comes as null, like a real null (tests/recordings).
    """
    if isinstance(value, list):
        return value in _lists(placeholder)
    if isinstance(value, dict):
        return value == {placeholder: placeholder}
    return value in _flat(placeholder)


def uuid_of(placeholder: str) -> UUID:
    """Return the UUID that Java makes of a text's bytes (`nameUUIDFromBytes`): version 3, without a namespace."""
    return UUID(
        bytes=hashlib.md5(placeholder.encode(errors="surrogatepass"), usedforsecurity=False).digest(), version=3
    )


@lru_cache(maxsize=64)
def _flat(placeholder: str) -> tuple[str | bytes, ...]:
    data = placeholder.encode(errors="surrogatepass")
    return placeholder, base64.b64encode(data).decode(), data


@lru_cache(maxsize=64)
def _lists(placeholder: str) -> tuple[list[str | int], ...]:
    return [placeholder], [str(uuid_of(placeholder))], list(placeholder.encode(errors="surrogatepass"))


_BINLOG_FILE: Final = re.compile(r".*\.(\d+)")
_WHOLE_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+\s*")
_LIMIT: Final = 1 << 63


@dataclass(frozen=True, slots=True, order=True)
class SourcePosition:
    """The place of a change among the changes of its key: the greater one is newer.

    Attributes:
        epoch: Counts the source's lives: another system identifier, timeline or GTID set begins the next, with a new
            initial snapshot.
        streamed: False for rows of snapshots, which are older than every streamed change of their epoch.
        position: PostgreSQL's LSN of the write, or the place in MySQL's binary log. A transaction that was open while
            the slot was created may have an LSN below the snapshot's.
        offset: The record's offset.

    Examples:
        >>> snapshot = SourcePosition(epoch=0, streamed=False, position=900, offset=4)
        >>> SourcePosition(epoch=0, streamed=True, position=700, offset=3) > snapshot
        True
    """

    epoch: int
    streamed: bool
    position: int
    offset: int


def position_of(body: Mapping[str, Any], *, epoch: int, offset: int) -> SourcePosition | None:
    """Return the position that a change event has in itself, None where its source is of no known kind.

    ``epoch`` is that of events that name none. ValueError for one that is no number.
    """
    source = body.get("source")
    if not isinstance(source, Mapping):
        return None
    streamed = is_streamed(source)
    place = _place(source)
    if place is None and not streamed:
        place = _seen_by_snapshot(source)
    said = body.get(rules.FIELD_EPOCH)
    life = epoch if said is None else whole_number(said)
    return None if place is None else SourcePosition(life, streamed, place, offset)


def whole_number(value: Any) -> int:
    """Return a number of 64 bits, also from text; ValueError for anything else, a boolean or a fraction too."""
    number = int(value) if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) else value
    if not is_number(number):
        raise ValueError(f"{str(value)[:60]!r} is no whole number")
    return number


def is_number(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number of 64 bits; a boolean is none."""
    return type(value) is int and -_LIMIT <= value < _LIMIT


def is_streamed(source: Mapping[str, Any]) -> bool:
    """Whether a change event's ``source`` is that of a streamed change, and not of a row that a snapshot read."""
    return source.get("snapshot", rules.STREAMED) in (rules.STREAMED, None, False)


def _seen_by_snapshot(source: Mapping[str, Any]) -> int | None:
    """How far the stream had come when an incremental snapshot read a row of PostgreSQL: the row has no LSN itself."""
    try:
        _, seen = json.loads(source["sequence"])
    except (LookupError, TypeError, ValueError, RecursionError):
        return None
    return 0 if seen is None else whole_number(seen)


def _place(source: Mapping[str, Any]) -> int | None:
    lsn = source.get("lsn")
    if is_number(lsn):
        return lsn
    file, byte = source.get("file"), source.get("pos")
    if isinstance(file, str) and is_number(byte) and (match := _BINLOG_FILE.fullmatch(file)):
        return (int(match[1]) << rules.BINLOG_BYTES) + byte
    return None


Lookup = Callable[[int], RegisteredSchema]
Content = tuple[dict[str, Any], Form | None]
_RECENT: Final = 4
# The first byte of a record in Avro: no JSON begins with it.
AVRO_MAGIC: Final = b"\0"


class RecordReader:
    """Reads keys or values of one topic: JSON alone, JSON with its schema, or Avro in Confluent framing.

    ``schemas`` finds the Avro schema of an id, such as ``ConfluentRegistry.schema``.
    """

    def __init__(self, part: str, schemas: Lookup | None) -> None:
        self._part = part
        self._avro = None if schemas is None else AvroDecoder(lambda schema_id: _as_written(schemas(schema_id)))
        self._avro_forms: dict[int, Form] = {}
        self._forms: dict[Form, Form] = {}
        self._recent: list[tuple[Any, Form]] = []

    def read(self, data: bytes, place: str) -> Content:
        """Return the record's object and its form, None where it carries no schema; UndecodableChange.

        Records of one schema have one form, the same object.
        """
        if data[:1] == AVRO_MAGIC:
            return self._read_avro(data, place)
        body = self._object(data, place)
        if body.keys() != {"schema", "payload"} or not isinstance(body["schema"], dict):
            return body, None
        if not isinstance(body["payload"], dict):
            raise self._refused("has a schema and is no object", place)
        return body["payload"], self._form(body["schema"], place)

    def _form(self, schema: Any, place: str) -> Form:
        # Record after record has the same one, or one of a few: partitions differ around a change of the table.
        for known, form in self._recent:
            if known == schema:
                return form
        try:
            form = Form.of_connect(schema)
            form = self._forms.setdefault(form, form)
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise self._refused("has a schema that is none of Connect's", place) from error
        self._recent = [(schema, form), *self._recent[: _RECENT - 1]]
        return form

    def _read_avro(self, data: bytes, place: str) -> Content:
        if self._avro is None:
            raise UndecodableChange(
                f"the record's {self._part} is Avro, and the reader has no schemas",
                remedy="give the registry's: schemas=ConfluentRegistry(…).schema",
                place=place,
            )
        try:
            schema, body = self._avro.decode(data)
            if schema.id not in self._avro_forms:
                self._avro_forms[schema.id] = Form.of_avro(schema.schema)
        except FactfoldError as error:
            raise UndecodableChange(
                f"the record's {self._part}: {error.message}", remedy=error.remedy, place=place
            ) from error
        if not isinstance(body, dict):
            raise self._refused("is Avro and no record", place)
        return body, self._avro_forms[schema.id]

    def _object(self, data: bytes, place: str) -> dict[str, Any]:
        try:
            body = json.loads(data.decode())  # of bytes, it would take other encodings too
        except (ValueError, RecursionError) as error:
            raise self._refused("is not JSON", place) from error
        if not isinstance(body, dict):
            raise self._refused("is no JSON object", place)
        return body

    def _refused(self, what: str, place: str) -> UndecodableChange:
        return UndecodableChange(
            f"the record's {self._part} {what}", remedy="check which writer fills this topic", place=place
        )


def _as_written(registered: RegisteredSchema) -> RegisteredSchema:
    """The schema without Avro's logical types: Connect's names say more, and raw values are read one way."""
    return dataclasses.replace(registered, schema=without_logical_types(registered.schema))


def without_logical_types(schema: Any) -> Any:
    """Return an Avro schema whose values are read as the plain types they are stored in."""
    if isinstance(schema, Mapping):
        return {key: without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [without_logical_types(member) for member in schema] if isinstance(schema, list) else schema


def fields_of(form: Form | None, name: str | None = None) -> Mapping[str, Form]:
    """Return the forms of a struct's fields, or of those of the struct in its field ``name``; none without a form."""
    if form is None:
        return {}
    fields = dict(form.fields)
    return fields if name is None else dict(fields[name].fields) if name in fields else {}


def commit_time(value: bytes, place: str, *, schemas: Lookup | None = None) -> datetime | None:
    """Return when a change event's transaction was committed by its source's clock, None if the record does not say.

    A row of a snapshot has the snapshot's time.

    Args:
        value: The value of a changelog topic's record.
        place: The record's address for messages.
        schemas: Finds the schema of an id, for records in Avro.

    Raises:
        UndecodableChange: The value is no change event.
    """
    body, _ = RecordReader("value", schemas).read(value, place)
    source = body.get("source")
    moment = source.get("ts_ms") if isinstance(source, dict) else None
    return datetime.fromtimestamp(moment / 1000, UTC) if isinstance(moment, int) else None
