"""The ledger of a group: a small Delta table with a row a generation, changed by one commit at a time.

A row says how far the run has come and which versions of its tables that is. So the commit of a row is the commit of a
batch, whatever was written before it; and the row that says ``serving`` is the pointer by which readers find the views.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import stamina

from projections.spark.delta_log import DeltaLog
from projections.spark.exchange import few_rows
from projections.spark.failures import told_plainly
from projections.tablestore.runs import Run, RunState, decode_progress, encode_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA: Final = pa.schema([
    ("generation", pa.int32()), ("version", pa.int32()), ("fingerprint", pa.string()), ("status", pa.string()),
    ("progress", pa.string()), ("tables", pa.map_(pa.string(), pa.int64())), ("token", pa.string()),
    ("holder", pa.string()), ("paused", pa.bool_()), ("held", pa.bool_()), ("built", pa.string()),
    ("updated_at", pa.timestamp("us", "UTC")),
])  # fmt: skip
_DDL: Final = (
    "generation int, version int, fingerprint string, status string, progress string, tables map<string, bigint>,"
    " token string, holder string, paused boolean, held boolean, built string, updated_at timestamp"
)
_PROPERTIES: Final = {"delta.isolationLevel": "Serializable"}
_ATTEMPTS: Final = 20


@dataclass(frozen=True)
class Entry:
    """The row of a generation: its state, and the versions of its tables, by their names."""

    state: RunState
    tables: Mapping[str, int]

    @property
    def run(self) -> Run:
        """The run."""
        return self.state.run

    def changed(self, *, tables: Mapping[str, int] | None = None, **values: Any) -> Entry:
        """The row with other values, as of now."""
        state = replace(self.state, **values, updated_at=dt.datetime.now(dt.UTC))
        return Entry(state, self.tables if tables is None else tables)


Entries = Mapping[int, Entry]


class _LostRace(Exception):
    """Another process committed to the ledger first."""


class Ledger:
    """The rows of one group's generations."""

    def __init__(self, spark: SparkSession, path: str, group: str) -> None:
        self._spark = spark
        self._log = DeltaLog(spark, path)
        self._group = group
        self._known: tuple[int, Entries] = (-1, {})

    def entries(self) -> Entries:
        """The rows as they are now, by generation; none where nothing was built."""
        return self._read(self._log.version())

    def change(self, change: Callable[[Entries], Entries]) -> Entries:
        """Put other rows in the place of those there are, in one commit that fails where another one comes first.

        ``change`` is asked again then, with the rows of that one; what it raises ends it, and nothing is changed.
        """
        for attempt in stamina.retry_context(on=_LostRace, attempts=_ATTEMPTS, timeout=60.0, wait_initial=0.05):
            with attempt:
                return self._change(change)
        raise AssertionError("the last attempt returns or raises")

    def _change(self, change: Callable[[Entries], Entries]) -> Entries:
        self._make()
        with self._log.told(lambda: _LostRace(self._log.path)):
            transaction = self._log.begin()
            # All rows go, whatever changes: of two commits at once the second finds its files gone, and fails.
            removed = self._log.files_read(transaction)
            found = self._read(int(transaction.readVersion()))
            wanted = change(found)
            if wanted != found:
                rows = pa.Table.from_pylist([_as_row(entry) for entry in wanted.values()], _SCHEMA)
                added = self._log.files_written(transaction, few_rows(self._spark, rows))
                self._known = (self._log.commit(transaction, removed=removed, added=added), wanted)
        return wanted

    def _read(self, version: int) -> Entries:
        if version != self._known[0]:
            self._known = (version, self._read_anew(version) if version >= 0 else {})
        return self._known[1]

    def _read_anew(self, version: int) -> Entries:
        with told_plainly(self._log.path):
            reader = self._spark.read.format("delta").option("versionAsOf", version)
            rows = reader.load(self._log.path).toArrow().to_pylist()
        entries = [_of_row(self._group, row) for row in rows]
        return {entry.run.generation: entry for entry in sorted(entries, key=lambda one: one.run.generation)}

    def _make(self) -> None:
        if self._log.version() >= 0:
            return
        with told_plainly(self._log.path):
            columns = self._log.java.org.apache.spark.sql.types.StructType.fromDDL(_DDL)
            builder = self._log.java.io.delta.tables.DeltaTable.createIfNotExists(self._log.session)
            builder = builder.location(self._log.path).addColumns(columns)
            for name, value in _PROPERTIES.items():
                builder = builder.property(name, value)
            builder.execute()


def _as_row(entry: Entry) -> dict[str, Any]:
    state, run = entry.state, entry.run
    return {
        "generation": run.generation,
        "version": run.version,
        "fingerprint": run.fingerprint,
        "status": state.status,
        "progress": json.dumps(encode_progress(state.progress)),
        "tables": list(entry.tables.items()),
        "token": run.token,
        "holder": state.holder,
        "paused": state.paused,
        "held": state.held,
        "built": json.dumps(dict(state.built)),
        "updated_at": state.updated_at,
    }


def _of_row(group: str, row: Mapping[str, Any]) -> Entry:
    run = Run(group, row["generation"], row["fingerprint"], row["token"], row["version"])
    progress, built = decode_progress(json.loads(row["progress"])), json.loads(row["built"])
    state = RunState(run, row["status"], progress, row["paused"], row["held"], row["holder"], built, row["updated_at"])
    return Entry(state, dict(row["tables"]))
