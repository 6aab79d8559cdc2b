"""A projection group on trial: rows come, change and go, and its live views must be what a recomputation gives.

Spark and the engine are the real ones; the log is in memory, the views are in a SQLite file.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from eventstore import MasterKeys, SqlEventStore, SqlKeyStore
from eventstore.closing import Closing
from eventstore.erasure import FollowedKeys, PersonalData
from eventstore.event_types import event_type_of
from eventstore.personal.sealing import Origin
from projections.declaring.group import ProjectionGroup
from projections.declaring.tables import CapturedTable, ChangelogTable, Table
from projections.environment import Environment
from projections.errors import InvalidDefinition
from projections.lifecycle.rebuild import rebuild
from projections.lifecycle.runner import open_runner
from projections.lifecycle.verifying import verify
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores.comparison import DifferingRow
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import ChangeWriter, MemoryLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Row = Mapping[str, Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ViewsDiffer(AssertionError):
    """A live view differs from its recomputation. The message has the keys, and both rows of each."""


def _own_keys(folder: str | Path) -> SqlKeyStore:
    url = f"sqlite:///{Path(folder) / 'keys.db'}"
    with SqlEventStore(url) as tables:
        tables.create_tables()
    return SqlKeyStore(url, MasterKeys({"trial": secrets.token_bytes(32)}))


class ViewTrial(Closing):
    """Runs a group's views over a log in memory, for tests. In pytest, use the fixture `view_trial`.

    `put`, `delete` and `record` only write. `check` applies one batch, and compares the views with a recomputation.

    Args:
        spark: A Spark session.
        group: The group.
        folder: A folder for the file of the views.
        keys: The key store of personal columns, by default one of its own. The caller closes it.

    Examples:
        >>> with ViewTrial(spark, ProjectionGroup("shop", [bought]), folder) as trial:
        ...     trial.put(customers, {"id": 7, "name": "Ann"})
        ...     trial.check()
    """

    def __init__(
        self, spark: SparkSession, group: ProjectionGroup, folder: str | Path, *, keys: FollowedKeys | None = None
    ) -> None:
        self._group, self._held = group, ExitStack()
        store = SqliteTableStore(Path(folder) / f"{group.name}.db")
        self._held.callback(store.close)
        store.prepare()
        kinds = [kind for table in group.tables.values() for kind in table.event_types()]
        self._log = MemoryLog({kind.schema_id: kind.registered for kind in kinds})
        # Few rows: what a session of many would compile and shuffle for them takes several times longer.
        small = small_batch_session(spark)
        if group.personal and keys is None:
            keys = self._held.enter_context(_own_keys(folder))
        self._keys = keys
        self._environment = Environment.of(small, small, store, self._log, keys)
        self._changes = ChangeWriter(self._log)
        self._store = store
        self._rows: dict[str, dict[tuple[Any, ...], Row]] = {}
        self._versions: Counter[str] = Counter()
        rebuild(self._environment, group)
        _, self._layout = store.serving(group, view_columns(spark, group))
        self._runner = self._held.enter_context(open_runner(self._environment, group))

    def close(self) -> None:
        """Close the views. The Spark session stays."""
        self._held.close()

    def put(self, table: CapturedTable, row: Row, *, committed: datetime | None = None) -> None:
        """Insert or update a row of a captured table, as committed at a time."""
        self._changes.put(table, row, committed=_micros(committed))
        self._rows.setdefault(table.topic, {})[_key(table, row)] = dict(row)

    def delete(self, table: CapturedTable, key: Row, *, committed: datetime | None = None) -> None:
        """Delete a row of a captured table."""
        self._changes.delete(table, key, committed=_micros(committed))
        self._rows.setdefault(table.topic, {}).pop(_key(table, key), None)

    def record(self, stream: str, *events: object, time: datetime | None = None) -> None:
        """Record the next events of a stream, at a time. By default one event each second, from the beginning of 1970.

        Raises InvalidDefinition if no table or stream of the group reads them.
        """
        table = self._folding(stream)
        for event in events:
            key, origin = f"{stream}@{self._versions[stream]}".encode(), Origin(stream, (id := uuid4()).hex)
            moment = time or _EPOCH + timedelta(seconds=self._versions.total())
            self._log.append(table.topic, key, self._encoded(event, origin), source=table.source, time=moment, id=id)
            self._versions[stream] += 1

    def _encoded(self, event: object, origin: Origin) -> bytes:
        kind = event_type_of(event)
        if not kind.personal:
            return kind.encode(event)
        return PersonalData(self._keys).sealer(kind.subjects(event, origin.aggregate_id))(kind, event, origin)

    def check(self) -> None:
        """Apply what was written as one batch, and compare the views. Raises ViewsDiffer with the differing rows."""
        self._runner.catch_up()
        verdicts = verify(self._environment, self._group)
        wrong = [_described(name, row) for name, verdict in verdicts.items() for row in verdict.differing]
        if not all(verdict.equal for verdict in verdicts.values()):
            raise ViewsDiffer("\n".join(wrong) or f"rows come twice: {verdicts}")

    def shake(self, seed: int = 0) -> None:
        """Change a row of every captured table, column by column, delete it and insert it again, and check each time.

        Use it for views with Python functions, whose code no plan shows. Another seed takes another row. Tables folded
        from events stay as they are, and so do decimals, dates, times and bytes that have one value in all rows.
        """
        self.check()
        chance = random.Random(seed)  # noqa: S311 - which row, not a secret
        for table in self._group.tables.values():
            if isinstance(table, ChangelogTable) and (rows := self._rows.get(table.topic)):
                self._shake(table, chance.choice(list(rows.values())), chance)

    def rows(self, view: str) -> list[dict[str, Any]]:
        """Return a live view's rows in the order of its key. Decimals are text."""
        layout = self._layout.views[view]
        batches = self._store.target(layout.view).fetch(layout.columns, order_by=layout.definition.key)
        return [row for batch in batches for row in batch.to_pylist()]

    def _shake(self, table: ChangelogTable, row: Row, chance: random.Random) -> None:
        for column in table.payload:
            if (value := self._other(table, row, column, chance)) is not None:
                self.put(table, {**row, column: value})
                self._check_after(f"{column} of {_key(table, row)} became {value!r}", table)
                self.put(table, row)
        self.delete(table, row)
        self._check_after(f"{_key(table, row)} was deleted", table)
        self.put(table, row)
        self._check_after(f"{_key(table, row)} was inserted again", table)

    def _other(self, table: ChangelogTable, row: Row, column: str, chance: random.Random) -> Any:
        """Another value of a column: another row's, or one made up; None where there is none."""
        values = [stored[column] for stored in self._rows[table.topic].values()]
        others = [value for value in values if value not in (None, row[column])]
        return chance.choice(others) if others else _made_up(table.columns[column].kind, row[column])

    def _check_after(self, happening: str, table: ChangelogTable) -> None:
        try:
            self.check()
        except ViewsDiffer as error:
            raise ViewsDiffer(f"after {happening} in {table.topic}:\n{error}") from None

    def _folding(self, stream: str) -> Table:
        for table in self._group.tables.values():
            if table.category is not None and stream.startswith(f"{table.category}-"):
                return table
        raise InvalidDefinition(
            f"no table or stream of group {self._group.name!r} reads stream {stream!r}",
            remedy="name it category-id, of the aggregate of a Table.from_events(…) or Stream.from_events(…)",
        )


def _key(table: CapturedTable, row: Row) -> tuple[Any, ...]:
    return tuple(row[c] for c in table.key)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // timedelta(microseconds=1)


def _made_up(kind: str, value: Any) -> Any:
    """Another value of a type; None where JSON has too many forms of it to guess one."""
    if kind == "boolean":
        return not value
    if kind in ("int", "long", "double"):
        return (value or 0) + 1
    return f"{value or ''}x" if kind == "string" else None


def _described(view: str, row: DifferingRow) -> str:
    one, other = (None if side is None else dict(side) for side in (row.one, row.other))
    return f"view {view}, key {dict(row.key)}: live {one}, recomputed {other}"
