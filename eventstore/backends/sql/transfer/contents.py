"""What an export holds, whichever form its file has."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

from eventstore.backends.sql.transfer.keys import WrappedKey
from eventstore.errors import FactfoldError, InvalidExport
from eventstore.given_values import require_type
from eventstore.identifiers import StreamName, check_source, check_type_name
from eventstore.messages import Metadata
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import Category
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
