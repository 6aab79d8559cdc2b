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

from projections.errors import SparkFailed
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
# Every commit takes all rows away and adds them again, so that of two at once one fails and looks again.
_PROPERTIES: Final = {"delta.isolationLevel": "Serializable"}
_RACE: Final = "DELTA_CONCURRENT"
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
        self._path = path
        self._group = group
        self._known: tuple[int, Entries] = (-1, {})

    def entries(self) -> Entries:
        """The rows as they are now, by generation; none where nothing was built."""
        with told_plainly(self._path):
            return self._read(int(self._updated().version()))

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
        try:
            with told_plainly(self._path):
                transaction = self._log().startTransaction()
                found = self._read(int(transaction.readVersion()))
        except SparkFailed as error:
            raise self._raced(error) from error
        wanted = change(found)
        if wanted != found:
            self._commit(transaction, wanted)
        return wanted

    def _commit(self, transaction: Any, entries: Entries) -> None:
        rows = pa.Table.from_pylist([_as_row(entry) for entry in entries.values()], _SCHEMA)
        try:
            with told_plainly(self._path):
                actions = self._java.scala.collection.mutable.ListBuffer()
                for file in _items(transaction.filterFiles()):
                    actions.append(file.remove())
                for file in _items(transaction.writeFiles(self._spark.createDataFrame(rows).coalesce(1)._jdf)):  # noqa: SLF001
                    actions.append(file)
                transaction.commit(actions.toSeq(), self._operation())
        except SparkFailed as error:
            raise self._raced(error) from error

    def _raced(self, error: SparkFailed) -> Exception:
        return _LostRace(self._path) if _RACE in str(error.__cause__) else error

    def _operation(self) -> Any:
        """What the table's history says of the commit."""
        operation = getattr(self._java.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$")
        return getattr(operation, "MODULE$")

    def _read(self, version: int) -> Entries:
        if version != self._known[0]:
            self._known = (version, self._read_anew(version) if version >= 0 else {})
        return self._known[1]

    def _read_anew(self, version: int) -> Entries:
        rows = self._spark.read.format("delta").option("versionAsOf", version).load(self._path).toArrow()
        entries = [_of_row(self._group, row) for row in rows.to_pylist()]
        return {entry.run.generation: entry for entry in sorted(entries, key=lambda one: one.run.generation)}

    def _make(self) -> None:
        if int(self._updated().version()) < 0:
            with told_plainly(self._path):
                columns = self._java.org.apache.spark.sql.types.StructType.fromDDL(_DDL)
                builder = self._java.io.delta.tables.DeltaTable.createIfNotExists(self._session)
                builder = builder.location(self._path).addColumns(columns)
                for name, value in _PROPERTIES.items():
                    builder = builder.property(name, value)
                builder.execute()

    def _updated(self) -> Any:
        nothing = self._java.scala.Option.empty()
        return self._log().update(False, nothing, nothing)

    def _log(self) -> Any:
        return self._java.org.apache.spark.sql.delta.DeltaLog.forTable(self._session, self._path)

    @property
    def _java(self) -> Any:
        return self._spark._jvm  # noqa: SLF001 - Delta's transactions have no Python face (docs/decisions/0037)

    @property
    def _session(self) -> Any:
        return self._spark._jsparkSession  # noqa: SLF001


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


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
