"""Captured tables of a PostgreSQL source, compared with states that are made from their changelogs.

    with ComparedGroup(views_url, shop_views) as group:
        for table in compare_tables(engine, source, group.tables, settings):
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
from cdc.comparing.report import OnProgress, StateTable, TableComparison
from cdc.comparing.rows import Key, Rows
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
from cdc.errors import InvalidConnector
from cdc.identifiers import TableName

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connectors.postgres import PostgresSource
    from cdc.source.signals import Signals
    from eventstore.settings import Settings

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
