"""Captured tables of a PostgreSQL source, compared with states that are made from their changelogs.

    with ComparedGroup(views_url, shop_views) as group:
        for table in compare_tables(engine, source, group.tables, settings):
            print(table.table, table.equal, table.missing, table.extra, table.differing)

No transaction of the source is longer than one chunk, and nothing is written there but marks in its log.

Waiting until a place of a source's log has come through the connector and into a state.

The first look at a table: chunk by chunk of its keys, digests first, rows where digests differ.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from cdc.comparing.repairing import Repair
from cdc.comparing.report import Key, KeyRange, OnProgress, Rows, StateTable, TableComparison, ordered
from cdc.comparing.source_table import (
    ORDERS_BY_BYTES,
    SourceTable,
    comparable,
    condition,
    reading,
    source_rows,
    source_table,
)
from cdc.comparing.walk import PATIENCE, Settled, Walk, settle
from cdc.errors import ConnectorTimeout, InvalidConnector
from cdc.identifiers import TableName
from cdc.source.catalogue import typed_errors
from cdc.source.grants import mark_source
from eventstore.kafka.admin import OffsetReader

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connectors.postgres import PostgresSource
    from cdc.source.signals import Signals
    from eventstore.settings import Settings

_LOOK_SECONDS: Final = 0.1
_MARK_SECONDS: Final = 0.5
_HERE: Final = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
_CONFIRMED: Final = (
    "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s"
)


class Passage(AbstractContextManager["Passage"]):
    """The way from the source's log to the states; ``patience`` bounds each wait, in seconds."""

    def __init__(self, engine: Engine, source: PostgresSource, settings: Settings, *, patience: float) -> None:
        self._engine = engine
        self._source = source
        self._patience = patience
        self._offsets = OffsetReader(settings)

    def here(self) -> int:
        """Return a place in the source's log behind every commit that a query has seen by now."""
        with typed_errors(self._engine), self._engine.connect() as connection:
            return int(connection.exec_driver_sql(_HERE).scalar_one())

    def wait(self, state: StateTable, place: int) -> None:
        """Wait until a state has everything that was committed before a place; ConnectorTimeout."""
        deadline = time.monotonic() + self._patience
        self._until(lambda: self._confirmed() >= place, deadline, self._not_captured)
        # Not the last committed offset: each partition learns of a commit by itself.
        ends = self._offsets.end_offsets([state.topic], committed=False)[state.topic]
        self._until(lambda: state.reached(ends), deadline, lambda: self._not_applied(state))

    def ends(self, topic: str) -> dict[int, int]:
        """Return the offset behind the last record of each partition."""
        return dict(self._offsets.end_offsets([topic])[topic])

    def __exit__(self, *_: object) -> None:
        self._offsets.close()

    def _until(self, there: Callable[[], bool], deadline: float, late: Callable[[], ConnectorTimeout]) -> None:
        marked = 0.0
        while not there():
            if time.monotonic() >= deadline:
                raise late()
            if time.monotonic() - marked > _MARK_SECONDS:
                mark_source(self._engine)
                marked = time.monotonic()
            time.sleep(_LOOK_SECONDS)

    def _confirmed(self) -> int:
        with typed_errors(self._engine), self._engine.connect() as connection:
            lsn = connection.exec_driver_sql(_CONFIRMED, (self._source.slot,)).scalar()
        return 0 if lsn is None else int(lsn)

    def _not_captured(self) -> ConnectorTimeout:
        return ConnectorTimeout(
            f"connector {self._source.name!r} did not come to the source's present in {self._patience:g} s",
            remedy=f"see whether it runs (factfold cdc status {self._source.name}), or wait longer: --timeout",
            place=f"slot {self._source.slot}",
            code="state-behind",
        )

    def _not_applied(self, state: StateTable) -> ConnectorTimeout:
        return ConnectorTimeout(
            f"the state of {state.topic} did not come to the end of its topic in {self._patience:g} s",
            remedy="let the group's runner run (factfold projections run), or wait longer: --timeout",
            place=state.place,
            code="state-behind",
        )


# A chunk is read in a tenth of a second on either side, and its rows' digests are a megabyte where they differ.
CHUNK_ROWS: Final = 10_000
# Without an index each chunk reads the whole table: then there are few of them.
_CHUNKS_WITHOUT_INDEX: Final = 20


@dataclass
class FirstLook:
    """What the chunks had, and the keys that have to be looked at again; rows change while they are compared."""

    source_rows: int = 0
    state_rows: int = 0
    chunks: int = 0
    suspects: list[Key] = field(default_factory=list)


def look(
    source: Rows, state: Rows, *, orders: tuple[str, ...], chunk: int, on_compared: Callable[[int], None]
) -> FirstLook:
    """Compare all chunks once, both sides at the same time; ``on_compared`` gets the number of rows compared so far."""
    result = FirstLook()
    with ThreadPoolExecutor(2) as both:

        def ask(question: Callable[[Rows], Any]) -> tuple[Any, Any]:
            one, other = both.map(question, (source, state))
            return one, other

        for keys in _ranges(ask, orders, _chunk_rows(source, state, chunk)):
            ours, theirs = ask(methodcaller("digest", keys))
            result.chunks += 1
            result.source_rows += ours.rows
            result.state_rows += theirs.rows
            if ours != theirs:
                result.suspects += _suspects(*ask(methodcaller("rows", keys)))
            on_compared(max(result.source_rows, result.state_rows))
    return result


def _suspects(source: Any, state: Any) -> Iterator[Key]:
    for key in source.keys() | state.keys():
        ours, theirs = source.get(key), state.get(key)
        if ours is None or theirs is None or ours.digest != theirs.digest:
            yield key


def _chunk_rows(source: Rows, state: Rows, chunk: int) -> int:
    if source.is_indexed and state.is_indexed:
        return chunk
    return max(chunk, source.estimate // _CHUNKS_WITHOUT_INDEX)


def _ranges(ask: Callable[..., tuple[Any, Any]], orders: tuple[str, ...], rows: int) -> Iterator[KeyRange]:
    """Ranges that hold all keys; none has more than so many rows on either side."""
    lower: Key | None = None
    while True:
        ends = [key for key in ask(methodcaller("last_of", lower, rows)) if key is not None]
        upper = min(ends, key=lambda key: ordered(key, orders), default=None)
        # An order of a database that is not ours must not keep us here: one range has all the rest then.
        if upper is not None and lower is not None and ordered(upper, orders) <= ordered(lower, orders):
            upper = None
        yield KeyRange(lower, upper)
        if upper is None:
            return
        lower = upper


_STILL: Final = (
    "the rows were read again, and still differ: look for transforms of the connector that change or drop rows, and "
    "for records that the group has set aside, then rebuild the group"
)
_STATELESS: Final = "not compared: no state of the groups is made from it"


def compare_tables(
    engine: Engine,
    source: PostgresSource,
    states: Sequence[StateTable],
    settings: Settings,
    *,
    tables: Collection[str] | None = None,
    chunk: int = CHUNK_ROWS,
    patience: float = PATIENCE,
    repair: Signals | None = None,
    on_progress: OnProgress = lambda progress: None,
) -> tuple[TableComparison, ...]:
    """Compare captured tables with every state that is made from them.

    Args:
        engine: The source database.
        source: The connector.
        states: The states, such as `ComparedGroup.tables`.
        settings: The settings of the Kafka cluster that has the topics.
        tables: The tables to compare, by default all.
        chunk: The rows of one comparison.
        patience: Seconds to wait for the connector or a state to catch up.
        repair: Let the connector read differing rows again, and compare them once more.
        on_progress: Is called as the comparison goes on.

    Returns:
        For each table and state: `equal`, the keys in `missing`, `extra`, `differing` and `changing`, the `faults` of
        the tables, the columns in `not_compared`, and how many keys were `repaired`.

    Raises:
        InvalidConnector: A table is not captured.
        SourceNotReady: The source database lacks something.
        ConnectorTimeout: The connector or a runner did not catch up. A repair raises the errors of a snapshot.

    Examples:
        >>> with ComparedGroup(views_url, shop_views) as states:
        ...     comparisons = compare_tables(engine, rows, states.tables, settings)
        >>> [comparison.table for comparison in comparisons if not comparison.equal]
        []
    """
    _require_servers(states)
    comparisons: list[TableComparison] = []
    with Passage(engine, source, settings, patience=patience) as passage:
        for table in source.tables if tables is None else tables:
            topic = source.topic(table)
            ours = [one for one in states if one.topic == topic]
            for one in ours:
                comparisons.append(
                    _compared(engine, passage, table, one, chunk=chunk, repair=repair, on_progress=on_progress)
                )
            comparisons += [] if ours else [TableComparison(table, "", (), notes=(_STATELESS,))]
    return tuple(comparisons)


def _require_servers(states: Sequence[StateTable]) -> None:
    for state in states:
        if state.is_embedded:
            raise InvalidConnector(
                f"the state {state.name} is in a SQLite file, and connectors' tables are compared in PostgreSQL",
                remedy="compare the tables of a file without connectors: cdc.compare_embedded",
                place=state.place,
            )


def _compared(
    engine: Engine,
    passage: Passage,
    name: str,
    state: StateTable,
    *,
    chunk: int,
    repair: Signals | None,
    on_progress: OnProgress,
) -> TableComparison:
    """Look at all rows, and again at those that differ."""
    with reading(engine) as ours, state.connect() as theirs:
        table = source_table(ours, TableName.parse(name))
        fit = comparable(table, state)
        report = TableComparison(
            name, state.name, state.key, faults=fit.faults, notes=fit.notes, not_compared=fit.not_compared
        )
        if fit.why_not is not None:
            return dataclasses.replace(report, faults=(*fit.faults, fit.why_not))
        by_bytes = bool(theirs.exec_driver_sql(ORDERS_BY_BYTES).scalar_one())
        rows = source_rows(ours, table, state, fit.columns)
        stored = state.rows(theirs, fit.columns, orders_by_bytes=by_bytes)
        sides = _Sides(name, state, on_progress, table, rows, stored, passage, repair)
        first = sides.look(chunk)
        report = dataclasses.replace(
            report, source_rows=first.source_rows, state_rows=first.state_rows, chunks=first.chunks
        )
        return sides.compared(report, first.suspects, repairs=repair is not None)


@dataclasses.dataclass(frozen=True)
class _Sides(Walk):
    """The rows of a table in both databases."""

    declared: SourceTable
    source: Rows
    stored: Rows
    passage: Passage
    signals: Signals | None

    def look(self, chunk: int) -> FirstLook:
        """Compare all rows, chunk by chunk."""
        kinds = tuple(self.state.forms[name].kind for name in self.state.key)
        total = max(self.source.estimate, 0)
        self.tell("comparing", 0, total)
        return look(
            self.source,
            self.stored,
            orders=kinds,
            chunk=chunk,
            on_compared=lambda rows: self.tell("comparing", rows, total),
        )

    def settle(self, suspects: Sequence[Key]) -> Settled:
        """Wait for the state to pass the source's place in its log, and look again."""
        self.tell("settling", 0, len(suspects))
        passage = self.passage
        return settle(
            self.source, self.stored, suspects, here=passage.here, wait=lambda place: passage.wait(self.state, place)
        )

    def repair(self, settled: Settled) -> str | None:
        """Let the connector read rows again."""
        assert self.signals is not None  # noqa: S101 - repairs are asked for by signals
        self.tell("repairing", 0, len(settled.wrong))
        repair = Repair(
            self.signals,
            self.table,
            self.state,
            lambda ranges: condition(self.source.connection, self.declared, self.state, ranges),
        )
        return repair.run(settled, before=self.passage.ends(self.state.topic)) or _STILL

    def columns(self, keys: Sequence[Key]) -> dict[Key, tuple[str, ...]]:
        """Compare a digest of each column."""
        names = tuple(self.source.columns)
        ours, theirs = self.source.columns_of(keys), self.stored.columns_of(keys)
        nothing = (None,) * len(names)
        pairs = {key: zip(names, ours.get(key, nothing), theirs.get(key, nothing), strict=True) for key in keys}
        return {key: tuple(name for name, one, other in columns if one != other) for key, columns in pairs.items()}
