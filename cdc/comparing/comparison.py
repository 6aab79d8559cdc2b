"""Captured tables of a PostgreSQL source, compared with states that are made from their changelogs.

    with ComparedGroup(views_url, shop_views) as group:
        for table in compare(engine, source, group.tables, settings):
            print(table.table, table.equal, table.missing, table.extra, table.differing)

No transaction of the source is longer than one chunk, and nothing is written there but marks in its log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from cdc.comparing.chunks import CHUNK_ROWS, FirstLook, look
from cdc.comparing.passage import Passage
from cdc.comparing.repairing import Repair
from cdc.comparing.report import ComparisonProgress, OnProgress, TableComparison
from cdc.comparing.rows import Key, Rows, ordered
from cdc.comparing.settling import Settled, settle
from cdc.comparing.source_table import (
    ORDERS_BY_BYTES,
    SourceTable,
    comparable,
    condition,
    reading,
    source_rows,
    source_table,
)
from cdc.comparing.state import StateTable
from cdc.errors import InvalidConnector
from cdc.identifiers import TableName

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connectors.postgres import PostgresSource
    from cdc.source.signals import Signals
    from eventstore.settings import Settings

PATIENCE: Final = 120.0
_STILL: Final = (
    "the rows were read again, and still differ: look for transforms of the connector that change or drop rows, and "
    "for records that the group has set aside, then rebuild the group"
)
_STATELESS: Final = "not compared: no state of the groups is made from it"
_SHOWN: Final = 20  # differing keys whose columns are named


def compare(
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

    Raises:
        InvalidConnector: A table is not captured.
        SourceNotReady: The source database lacks something.
        StateBehind: The connector or a runner did not catch up. A repair raises the errors of a snapshot.

    Examples:
        >>> with ComparedGroup(views_url, shop_views) as states:
        ...     comparisons = compare(engine, rows, states.tables, settings)
        >>> [comparison.table for comparison in comparisons if not comparison.equal]
        []
    """
    _require_servers(states)
    comparisons: list[TableComparison] = []
    with Passage(engine, source, settings, patience=patience) as passage:
        for table in source.tables if tables is None else tables:
            topic = source.topic(table)
            ours = [one for one in states if one.topic == topic]
            comparisons += [_Look(engine, passage, table, one, chunk, on_progress, repair).compared() for one in ours]
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


@dataclasses.dataclass(frozen=True)
class _Look:
    """The comparison of one table with one state."""

    engine: Engine
    passage: Passage
    table: str
    state: StateTable
    chunk: int
    on_progress: OnProgress
    signals: Signals | None

    def compared(self) -> TableComparison:
        """Look at all rows, and again at those that differ."""
        with reading(self.engine) as ours, self.state.connect() as theirs:
            table = source_table(ours, TableName.parse(self.table))
            fit = comparable(table, self.state)
            report = TableComparison(
                self.table,
                self.state.name,
                self.state.key,
                faults=fit.faults,
                notes=fit.notes,
                not_compared=fit.not_compared,
            )
            if fit.why_not is not None:
                return dataclasses.replace(report, faults=(*fit.faults, fit.why_not))
            by_bytes = bool(theirs.exec_driver_sql(ORDERS_BY_BYTES).scalar_one())
            sides = _Sides(
                table,
                source_rows(ours, table, self.state, fit.columns),
                self.state.rows(theirs, fit.columns, orders_by_bytes=by_bytes),
            )
            return self._rows_compared(report, sides)

    def _rows_compared(self, report: TableComparison, sides: _Sides) -> TableComparison:
        first = self._look(sides)
        report = dataclasses.replace(
            report, source_rows=first.source_rows, state_rows=first.state_rows, chunks=first.chunks
        )
        settled = self._settled(sides, first.suspects)
        if self.signals is None or not settled.wrong:
            return self._reported(report, sides, settled)
        unrepaired = self._repair(self.signals, sides, settled)
        left = self._settled(sides, settled.wrong)
        repaired = len(settled.wrong) - len(left.wrong) - len(left.changing)
        left.changing += settled.changing
        report = self._reported(report, sides, left)
        return dataclasses.replace(report, repaired=repaired, unrepaired=(unrepaired or _STILL) if left.wrong else None)

    def _look(self, sides: _Sides) -> FirstLook:
        kinds = tuple(self.state.forms[name].kind for name in self.state.key)
        total = max(sides.source.estimate, 0)
        self._report_progress("comparing", 0, total)
        return look(
            sides.source,
            sides.state,
            orders=kinds,
            chunk=self.chunk,
            on_compared=lambda rows: self._report_progress("comparing", rows, total),
        )

    def _settled(self, sides: _Sides, suspects: Sequence[Key]) -> Settled:
        """Look at some keys again until what they show is certain."""
        self._report_progress("settling", 0, len(suspects))
        return settle(
            sides.source,
            sides.state,
            suspects,
            here=self.passage.here,
            wait=lambda place: self.passage.wait(self.state, place),
        )

    def _repair(self, signals: Signals, sides: _Sides, settled: Settled) -> str | None:
        self._report_progress("repairing", 0, len(settled.wrong))
        repair = Repair(
            signals,
            self.table,
            self.state,
            lambda ranges: condition(sides.source.connection, sides.table, self.state, ranges),
        )
        return repair.run(settled, before=self.passage.ends(self.state.topic))

    def _reported(self, report: TableComparison, sides: _Sides, settled: Settled) -> TableComparison:
        kinds = [self.state.forms[name].kind for name in self.state.key]

        def in_order(keys: Sequence[Key]) -> tuple[Key, ...]:
            return tuple(sorted(keys, key=lambda key: ordered(key, kinds)))

        differing = in_order(settled.differing)
        return dataclasses.replace(
            report,
            missing=in_order(settled.missing),
            extra=in_order(settled.extra),
            differing=differing,
            changing=in_order(settled.changing),
            differing_columns=_columns(sides, differing[:_SHOWN]),
        )

    def _report_progress(self, step: str, rows: int, total: int) -> None:
        self.on_progress(ComparisonProgress(self.table, step, rows, total))


@dataclasses.dataclass(frozen=True)
class _Sides:
    """The rows of a table in both databases."""

    table: SourceTable
    source: Rows
    state: Rows


def _columns(sides: _Sides, keys: Sequence[Key]) -> dict[Key, tuple[str, ...]]:
    """The names of the columns in which some rows differ."""
    if not keys:
        return {}
    names = tuple(sides.source.columns)
    ours, theirs = sides.source.columns_of(keys), sides.state.columns_of(keys)
    nothing = (None,) * len(names)
    pairs = {key: zip(names, ours.get(key, nothing), theirs.get(key, nothing), strict=True) for key in keys}
    return {key: tuple(name for name, one, other in columns if one != other) for key, columns in pairs.items()}
