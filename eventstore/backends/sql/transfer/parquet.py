"""An export as Parquet: a row an event, the head as JSON in the file's metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventstore.backends.sql.transfer.contents import (
    BATCH,
    MALFORMED,
    EventRow,
    Head,
    Progress,
    damaged,
    data_json,
    event_row,
    head_json,
    head_of_json,
)
from eventstore.errors import UnsupportedBackend

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise UnsupportedBackend(
        "Parquet needs pyarrow, which is not installed", remedy="pip install 'factfold[parquet]', or use JSON lines"
    ) from error

if TYPE_CHECKING:
    from pyarrow import Schema

_HEAD: Final = b"factfold"
_TEXTS: Final = ("source", "correlation_id", "causation_id", "traceparent", "command", "data")


def _columns() -> Schema:
    return pa.schema(
        [
            ("id", pa.string()),
            ("stream", pa.string()),
            ("version", pa.int32()),
            ("type", pa.string()),
            ("time", pa.timestamp("us", tz="UTC")),
            ("payload", pa.binary()),
            *((name, pa.string()) for name in _TEXTS),
            ("archived", pa.timestamp("us", tz="UTC")),
        ]
    )


class ParquetWriter:
    """Writes a file from its head on."""

    def __init__(self, path: Path, head: Head) -> None:
        self._schema = _columns().with_metadata({_HEAD: head_json(head)})
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add a row group."""
        encoded = [{**row, "id": str(row["id"]), "data": row["data"] and data_json(row["data"])} for row in rows]
        self._writer.write_table(pa.Table.from_pylist(encoded, schema=self._schema))

    def close(self) -> None:
        """Write the footer, without which the file is none."""
        self._writer.close()


class ParquetReader:
    """Reads a file, a batch of rows at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = pq.ParquetFile(path)
            metadata = self._file.schema_arrow.metadata or {}
        except (pa.ArrowException, OSError, *MALFORMED) as error:
            raise damaged(f"this is no Parquet file: {error}", str(path)) from error
        self.head = head_of_json(metadata.get(_HEAD, b""), str(path))

    def batches(self, on_progress: Progress) -> Iterator[list[EventRow]]:
        """Yield events, a batch at a time; InvalidExport names the row."""
        done, total = 0, self._file.metadata.num_rows
        try:
            for batch in self._file.iter_batches(batch_size=BATCH, columns=self._names()):
                yield [self._event(row, number) for number, row in enumerate(batch.to_pylist(), start=done + 1)]
                done += batch.num_rows
                on_progress(done, total)
        except (pa.ArrowException, OSError, *MALFORMED) as error:
            raise damaged(f"the rows cannot be read: {error}", f"{self._path}, row {done + 1}") from error
        finally:
            self._file.close()

    def _names(self) -> list[str]:
        return [name for name in _columns().names if name != "data"]

    def _event(self, row: dict[str, Any], number: int) -> EventRow:
        return event_row(row, number=number, place=f"{self._path}, row {number}")
