"""Captured tables of a SQLite file, compared with the states in the same file, and repaired by their changelog.

    with ComparedGroup("sqlite:///shop.db", shop_views) as group:
        for table in compare_embedded(group.tables):
            print(table.table, table.equal)

Both are read in one transaction, which holds up no writer; a key with a change that the state has not applied yet is
looked at again. Rows are repaired by new change records, written as the table's own triggers write them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cdc.comparing.report import ComparisonProgress, OnProgress, TableComparison
from cdc.comparing.rows import Key, ordered
from cdc.comparing.sqlite_text import source_text, state_text
from cdc.comparing.state import StateTable
from cdc.embedded.triggers import delete_again, read_again
from cdc.errors import InvalidConnector, SourceNotReady, StateBehind
from cdc.identifiers import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

PATIENCE: Final = 120.0
_LOOK_SECONDS: Final = 0.2
_SHOWN: Final = 20
_PENDING: Final = "SELECT DISTINCT message_key FROM factfold_changes WHERE topic = ? AND position >= ?"
_ABSENT: Final = "remove it from the model, or give it its new name, and rebuild the group"


def compare_embedded(
    states: Sequence[StateTable],
    *,
    tables: Collection[str] | None = None,
    patience: float = PATIENCE,
    repair: bool = False,
    on_progress: OnProgress = lambda progress: None,
) -> tuple[TableComparison, ...]:
    """Compare the captured tables of a SQLite file with the states that are made from them.

    Args:
        states: The states.
        tables: The tables to compare, by default all.
        patience: Seconds to wait for a runner to catch up.
        repair: Write differing rows to the changelog again.
        on_progress: Is called as the comparison goes on.

    Raises:
        InvalidConnector: A table is not captured.
        SourceNotReady: A captured table is missing.
        StateBehind: Changes are not applied in time.

    Examples:
        >>> with ComparedGroup("sqlite:///desk.db", desk) as states:
        ...     comparisons = compare_embedded(states.tables, repair=True)
        >>> sum(comparison.repaired for comparison in comparisons)
        0
    """
    comparisons = []
    for state in states:
        with _reading(state) as connection:
            table = _table_of(connection, state)
        if tables is None or table in tables:
            on_progress(ComparisonProgress(table, "comparing", 0, 0))
            comparisons.append(_Look(state, table, patience).compared(repair=repair))
    missing = set(tables or ()) - {one.table for one in comparisons}
    if missing:
        raise InvalidConnector(
            f"table {sorted(missing)[0]!r} is captured under no topic that the groups read",
            remedy=f"name one of {', '.join(sorted(one.table for one in comparisons)) or 'those that are captured'}",
        )
    return tuple(comparisons)


@dataclasses.dataclass
class _Differences:
    """Keys that differ and have no change on its way, and those that have."""

    rows: int = 0
    stored: int = 0
    missing: set[Key] = dataclasses.field(default_factory=set)
    extra: set[Key] = dataclasses.field(default_factory=set)
    differing: set[Key] = dataclasses.field(default_factory=set)
    pending: set[Key] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(frozen=True)
class _Look:
    """The comparison of one table with one state."""

    state: StateTable
    table: str
    patience: float

    def compared(self, *, repair: bool) -> TableComparison:
        """Compare, repair what differs, and compare again."""
        report, columns = self._report()
        if any(name not in columns for name in self.state.key):
            return dataclasses.replace(report, faults=(*report.faults, "a key column cannot be compared"))
        differences = self._settled(columns)
        wrong = differences.missing | differences.extra | differences.differing
        if not (repair and wrong):
            return self._reported(report, differences, columns)
        self._repair(differences, columns)
        left = self._settled(columns)
        repaired = len(wrong - left.missing - left.extra - left.differing)
        return dataclasses.replace(self._reported(report, left, columns), repaired=repaired)

    def _report(self) -> tuple[TableComparison, dict[str, tuple[str, str]]]:
        """What is known of the columns, and the texts of those that can be compared, on both sides."""
        with _reading(self.state) as connection:
            there = _columns(connection, self.table)
        known = {name: self.state.fields.get(name, name) for name in self.state.forms}
        present = {name: form for name, form in self.state.forms.items() if known[name] in there}
        texts = {
            name: (text, state_text(form, quoted(name)))
            for name, form in present.items()
            if (text := source_text(form, quoted(known[name]))) is not None
        }
        kinds = {name: form.kind for name, form in present.items() if name not in texts}
        report = TableComparison(
            self.table,
            self.state.name,
            self.state.key,
            chunks=1,
            faults=tuple(f"column {n} is not in the source; {_ABSENT}" for n in known.values() if n not in there),
            notes=tuple(
                f"column {n} of the source is not declared in the model" for n in there if n not in known.values()
            ),
            not_compared={name: f"{kind} has no common form in SQLite" for name, kind in kinds.items()},
        )
        return report, texts

    def _settled(self, columns: Mapping[str, tuple[str, str]]) -> _Differences:
        """Look again, at the keys whose changes were on their way, until they are applied; StateBehind."""
        until, differences = time.monotonic() + self.patience, self._look(columns)
        while differences.pending:
            if time.monotonic() > until:
                raise self._behind()
            time.sleep(_LOOK_SECONDS)
            again = self._look(columns)
            for kind in ("missing", "extra", "differing"):
                getattr(differences, kind).update(getattr(again, kind) & differences.pending)
            differences.pending &= again.pending
        return differences

    def _look(self, columns: Mapping[str, tuple[str, str]]) -> _Differences:
        # Asked for first: what the state has applied since only seems to be on its way.
        progress = self.state.progress().get(0, 0)
        ours, theirs = self._selects(columns)
        keys = ", ".join(f"k{n}" for n in range(len(self.state.key)))
        with _reading(self.state) as connection:
            one, other = (
                {tuple(row) for row in connection.exec_driver_sql(f"SELECT {keys} FROM ({a} EXCEPT {b})")}  # noqa: S608
                for a, b in ((ours, theirs), (theirs, ours))
            )
            pending = self._pending(connection, progress) & (one | other)
            rows, stored = (
                int(connection.exec_driver_sql(f"SELECT count(*) FROM ({each})").scalar_one())  # noqa: S608
                for each in (ours, theirs)
            )
        missing, extra, differing = (kind - pending for kind in (one - other, other - one, one & other))
        return _Differences(rows, stored, missing, extra, differing, pending)

    def _pending(self, connection: Connection, progress: int) -> set[Key]:
        keys = connection.exec_driver_sql(_PENDING, (self.state.topic, progress)).scalars()
        return {self.state.decode_key(key.encode(), self.state.topic) for key in keys}

    def _selects(self, columns: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
        """The rows of both sides as texts, the key first."""
        sides = []
        for side, relation in ((0, quoted(self.table)), (1, f"{self.state.relation} WHERE NOT _deleted")):
            key = [f"{columns[name][side]} AS k{n}" for n, name in enumerate(self.state.key)]
            rest = [f"{texts[side]} AS c{n}" for n, texts in enumerate(columns.values())]
            sides.append(f"SELECT {', '.join([*key, *rest])} FROM {relation}")  # noqa: S608
        return sides[0], sides[1]

    def _repair(self, differences: _Differences, columns: Mapping[str, tuple[str, str]]) -> None:
        texts = [columns[name][0] for name in self.state.key]
        with self.state.writing() as connection:
            again = differences.missing | differences.differing
            if again:
                read_again(connection, self.table, where=f"({', '.join(texts)}) IN ({_listed(texts)})", values=again)
            delete_again(connection, self.table, self.state.topic, self._message_keys(connection, differences.extra))

    def _message_keys(self, connection: Connection, keys: Collection[Key]) -> list[str]:
        if not keys:
            return []
        query = "SELECT DISTINCT message_key FROM factfold_changes WHERE topic = ?"
        known = connection.exec_driver_sql(query, (self.state.topic,)).scalars().all()
        return [key for key in known if self.state.decode_key(key.encode(), self.state.topic) in keys]

    def _reported(
        self, report: TableComparison, differences: _Differences, columns: Mapping[str, tuple[str, str]]
    ) -> TableComparison:
        kinds = [self.state.forms[name].kind for name in self.state.key]

        def in_order(keys: Collection[Key]) -> tuple[Key, ...]:
            return tuple(sorted(keys, key=lambda key: ordered(key, kinds)))

        differing = in_order(differences.differing)
        return dataclasses.replace(
            report,
            source_rows=differences.rows,
            state_rows=differences.stored,
            missing=in_order(differences.missing),
            extra=in_order(differences.extra),
            differing=differing,
            differing_columns=dict(self._columns_of(differing[:_SHOWN], columns)),
        )

    def _columns_of(
        self, keys: Sequence[Key], columns: Mapping[str, tuple[str, str]]
    ) -> Iterator[tuple[Key, tuple[str, ...]]]:
        ours, theirs = self._selects(columns)
        same = " AND ".join(f"a.k{n} = b.k{n} AND a.k{n} = ?" for n in range(len(self.state.key)))
        differ = ", ".join(f"a.c{n} IS NOT b.c{n}" for n in range(len(columns)))
        with _reading(self.state) as connection:
            for key in keys:
                query = f"SELECT {differ} FROM ({ours}) a JOIN ({theirs}) b ON {same}"  # noqa: S608
                for row in connection.exec_driver_sql(query, key):
                    yield key, tuple(name for name, differs in zip(columns, row, strict=True) if differs)

    def _behind(self) -> StateBehind:
        return StateBehind(
            f"changes of table {self.table!r} were not applied in {self.patience:g} s",
            remedy="let the group's runner run (factfold projections run), or wait longer: --timeout",
            place=self.state.place,
        )


def _listed(texts: Sequence[str]) -> str:
    parts = ", ".join(f"json_extract(value, '$[{n}]')" for n in range(len(texts)))
    return f"SELECT {parts} FROM json_each(?)"  # noqa: S608


@contextmanager
def _reading(state: StateTable) -> Iterator[Connection]:
    """One moment of the file."""
    with state.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        try:
            yield connection
        finally:
            connection.exec_driver_sql("ROLLBACK")


def _table_of(connection: Connection, state: StateTable) -> str:
    """The table that is captured under a state's topic; SourceNotReady."""
    query = "SELECT table_name FROM factfold_captures WHERE topic = ?"
    captures = connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'factfold_captures'").first()
    table: Any = captures and connection.exec_driver_sql(query, (state.topic,)).scalar()
    if not table:
        raise SourceNotReady(
            f"no table of the file is captured under topic {state.topic!r}",
            remedy="capture it in this file: cdc.capture(engine, model, topic=…)",
            place=state.place,
        )
    return str(table)


def _columns(connection: Connection, table: str) -> list[str]:
    columns = [row[0] for row in connection.exec_driver_sql("SELECT name FROM pragma_table_info(?)", (table,))]
    if not columns:
        raise SourceNotReady(
            f"table {table!r} does not exist, and is captured",
            remedy="create it and capture it again, or drop the group",
            place=table,
        )
    return columns
