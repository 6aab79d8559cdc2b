"""What an export holds, whichever form its file has.

An export as JSON lines: a header, categories, schemas, perhaps keys, events, and an end that counts.

`data` is for readers. The import takes `payload`, the Avro itself in base64, and loses nothing.
"""

from __future__ import annotations

import errno
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

from eventstore.backends.batch import rfc3339
from eventstore.backends.sql.transfer.keys import WrappedKey
from eventstore.erasure import keys_of_command
from eventstore.errors import FactfoldError, InvalidExport, InvalidIdentifier, NotFramedAvro
from eventstore.identifiers import StreamName, check_category, check_source, check_topic, check_type_name, require_type
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import Category, Metadata
from eventstore.topics import DELETED_TYPE

FORMAT: Final = 1
# 5,000 events of about 120 bytes are a transaction of some 3 MB.
BATCH: Final = 5_000
_HIGHEST: Final = 2**31 - 1

MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading values of the wrong form raises."""

Format = Literal["jsonl", "parquet"]
Progress = Callable[[int, int], None]
"""Called now and then with how much is done and how much there is, in units of its own."""


@contextmanager
def export_path(path: str | Path) -> Iterator[Path]:
    """Lend the path of an export; InvalidExport where it names no file, or the operating system refuses it."""
    require_type(path, (str, Path), "path", takes="the path of a file")
    try:
        if "\0" in str(path) or not Path(path).name:
            raise OSError("that is no name of a file")
        yield Path(path)
    except OSError as error:
        if error.errno == errno.EPIPE:  # of what tells the progress
            raise
        raise InvalidExport(
            f"the file cannot be read or written: {error.strerror or error}",
            remedy="check the path, its folder, their rights and the disk",
            place=str(path)[:200],
        ) from error


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in front of the events: the categories they belong to and the schemas they were written by.

    ``keys`` are those of personal fields, None in a file that was made without.
    """

    categories: Sequence[Category]
    schemas: Mapping[int, RegisteredSchema]
    keys: Sequence[WrappedKey] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event, or without a payload the end of a deleted stream; `number` is its line or row, counted from 1.

    ``archived`` is since when its stream is archived, if it is, and this its last event.
    """

    number: int
    id: UUID
    stream: StreamName
    version: int
    type: str
    payload: bytes | None
    time: datetime
    source: str
    metadata: Metadata
    command: str | None = None
    archived: datetime | None = None


def format_of(path: Path, requested: Format | None) -> Format:
    """Return the form of a file: the requested one, else by its suffix."""
    return requested or ("parquet" if path.suffix == ".parquet" else "jsonl")


def event_row(values: Mapping[str, Any], *, number: int, place: str) -> EventRow:
    """Check one event's columns; InvalidExport names the place."""
    try:
        version = values["version"]
        if type(version) is not int or not 0 <= version <= _HIGHEST:
            raise ValueError(f"{version!r} is no version")
        archived, payload = values.get("archived"), values["payload"]
        if (payload is None) != (values["type"] == DELETED_TYPE) or not isinstance(payload, bytes | None):
            raise ValueError("its payload is missing")
        if (command := values.get("command")) is not None:
            keys_of_command(command)
        why = {name: values.get(name) for name in ("correlation_id", "causation_id", "traceparent")}
        return EventRow(
            number=number,
            id=UUID(values["id"]),
            stream=StreamName.parse(values["stream"]),
            version=version,
            type=check_type_name(values["type"]),
            payload=payload,
            time=_zoned(values["time"]),
            source=check_source(values["source"]),
            metadata=Metadata(**why),
            command=command,
            archived=None if archived is None or payload is None else _zoned(archived).astimezone(UTC),
        )
    except (*MALFORMED, FactfoldError) as error:
        raise not_an_event(error, place) from error


def _zoned(time: Any) -> datetime:
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise ValueError(f"{time!r} is no time with a zone")
    time.astimezone(UTC)  # which the first and the last day of the calendar may not have
    return time


def not_an_event(error: Exception, place: str) -> InvalidExport:
    """Build the error for a line or row that is no event."""
    why = f"{error} is missing" if isinstance(error, KeyError) else getattr(error, "message", str(error))
    return damaged(f"this is no event: {why}", place)


def damaged(why: str, place: str) -> InvalidExport:
    """Build the error for a file that is no export, or no longer one."""
    return InvalidExport(
        why,
        remedy="export again, or correct the file. An import that is repeated goes on with what is missing",
        place=place,
    )


_NUMBERS: Final = range(1, 2**31)
_NO_MEMBER: Final = (*MALFORMED, NotFramedAvro, InvalidIdentifier)


class JsonLinesWriter:
    """Writes a file from its head on."""

    def __init__(self, path: Path, head: Head) -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")
        self._count = 0
        self._line({"kind": "export", "format": FORMAT, **({} if head.keys is None else {"keys": len(head.keys)})})
        for kind, members in _members(head).items():
            for values in members:
                self._line({"kind": kind, **values})

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add a line an event; metadata that is not there is left out."""
        for row in rows:
            payload = None if row["payload"] is None else b64encode(row["payload"]).decode()
            archived = None if row["archived"] is None else rfc3339(row["archived"])
            fields = {**row, "time": rfc3339(row["time"]), "payload": payload, "archived": archived}
            self._line({"kind": "event", **{name: value for name, value in fields.items() if value is not None}})
        self._count += len(rows)

    def close(self) -> None:
        """Add the end, without which the file is one that ends early."""
        self._line({"kind": "end", "events": self._count})
        self._file.close()

    def _line(self, values: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(values, ensure_ascii=False, default=_text) + "\n")


class JsonLinesReader:
    """Reads a file; its head at once, its events when asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._lines: Iterator[tuple[int, int, dict[str, Any]]] = self._parsed()
        self.head = self._read_head()

    def batches(self, on_progress: Progress) -> Iterator[list[EventRow]]:
        """Yield events, a batch at a time; InvalidExport names the line."""
        batch: list[EventRow] = []
        count = 0
        for number, read, values in self._lines:
            if values["kind"] == "end":
                self._check_end(values, count, number)
                yield batch
                on_progress(self._size, self._size)
                return
            batch.append(self._event(values, number))
            count += 1
            if len(batch) == BATCH:
                yield batch
                on_progress(read, self._size)
                batch = []
        raise damaged("the file ends early: its last line is not an end", str(self._path))

    def _read_head(self) -> Head:
        number, _, first = next(self._lines, (1, 0, {"kind": ""}))
        if first["kind"] != "export" or first.get("format") != FORMAT:
            raise damaged("this is no export of events that this release can read", self._place(number))
        made: dict[str, list[Any]] = {kind: [] for kind in _MEMBERS}
        for number, read, values in self._lines:
            if (kind := values["kind"]) not in made:
                self._lines = chain([(number, read, values)], self._lines)
                break
            try:
                made[kind].append(_MEMBERS[kind](values))
            except _NO_MEMBER as error:
                raise damaged(f"this is no {kind}", self._place(number)) from error
        if first.get("keys", 0) != len(made["key"]):
            says = first.get("keys", 0)
            raise damaged(f"the file has {len(made['key'])} keys, its head says {says}", self._place(number))
        return _head(made, with_keys="keys" in first, place=str(self._path))

    def _parsed(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield number, bytes read so far, and values of every line."""
        read = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                read += len(line)
                try:
                    values = json.loads(line)
                    if not isinstance(values.get("kind"), str):
                        raise ValueError("it has no kind")
                except MALFORMED as error:
                    raise damaged(f"this is no line of an export: {error}", self._place(number)) from error
                yield number, read, values

    def _event(self, values: dict[str, Any], number: int) -> EventRow:
        place = self._place(number)
        try:
            if values["kind"] != "event":
                raise ValueError(f"its kind is {values['kind']!r}")
            payload = b64decode(values["payload"], validate=True) if "payload" in values else None
            times: dict[str, Any] = {
                name: datetime.fromisoformat(values[name]) for name in ("time", "archived") if name in values
            }
        except MALFORMED as error:
            raise not_an_event(error, place) from error
        return event_row({**values, "payload": payload, **times}, number=number, place=place)

    def _check_end(self, values: dict[str, Any], count: int, number: int) -> None:
        if values.get("events") != count:
            raise damaged(f"the file has {count} events, its end says {values.get('events')}", self._place(number))

    def _place(self, number: int) -> str:
        return f"{self._path}, line {number}"


def _category(values: Mapping[str, Any]) -> Category:
    numbers = values["partitions"], values["generation"]
    if any(type(number) is not int or number not in _NUMBERS for number in numbers):
        raise TypeError("partitions and generation count from 1")
    return Category(check_category(values["name"]), check_topic(values["topic"]), *numbers)


_MEMBERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "category": _category,
    "schema": RegisteredSchema.from_values,
    "key": WrappedKey.from_json,
}
"""What a head has, by the kinds of its lines, and how each is read."""
_PLURALS: Final = {"category": "categories", "schema": "schemas", "key": "keys"}


def _members(head: Head) -> dict[str, list[dict[str, Any]]]:
    """What a head has, by the kinds of its lines, as values of JSON."""
    return {
        "category": [asdict(category) for category in head.categories],
        "schema": [json.loads(schema.to_json()) for schema in head.schemas.values()],
        "key": [key.to_json() for key in head.keys or ()],
    }


def _head(made: Mapping[str, Sequence[Any]], *, with_keys: bool, place: str) -> Head:
    """Put a head together; InvalidExport where it says two things of one name or id."""
    categories, schemas, keys = made["category"], made["schema"], made["key"]
    for identifiers in ([one.name for one in categories], [one.id for one in schemas], [one.id for one in keys]):
        if len(set(identifiers)) < len(identifiers):
            raise damaged("its head has a category, a schema or a key twice", place)
    return Head(categories, {schema.id: schema for schema in schemas}, keys if with_keys else None)


def _text(value: object) -> str:
    """Spell what JSON has no form for."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value)


def data_json(data: Mapping[str, Any]) -> str:
    """Return an event's fields as JSON."""
    return json.dumps(data, ensure_ascii=False, default=_text)


def head_json(head: Head) -> str:
    """Return the head as one JSON text."""
    members = {_PLURALS[kind]: values for kind, values in _members(head).items()}
    if head.keys is None:
        del members["keys"]
    return json.dumps({"format": FORMAT, **members}, ensure_ascii=False)


def head_of_json(text: str | bytes, place: str) -> Head:
    """Read what `head_json` wrote; InvalidExport."""
    try:
        head = json.loads(text)
        if head["format"] != FORMAT:
            raise ValueError("another format")
        members = {"keys": [], **head}
        made = {kind: [read(one) for one in members[_PLURALS[kind]]] for kind, read in _MEMBERS.items()}
    except _NO_MEMBER as error:
        raise damaged("this is no export of events that this release can read", place) from error
    return _head(made, with_keys="keys" in head, place=place)
