"""The records that a run has set aside, stored with its state in the transaction that moves progress past them.

Those of the generation that serves are dead letters, which are looked at and discarded here. They are not replayed:
their records are in the log, and a rebuild reads them again once the class, the schema or the missing event is there. A
discarded record stays set aside in its generation, whose verification leaves it out. It is not listed, until a rebuild
sets it aside again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from eventstore.backends.sql.letter_rows import ActionRows
from eventstore.backends.sql.values import in_utc
from eventstore.backends.sql.ways import upsert
from eventstore.deadletters.letters import Action, Contents, Deed, Letter, Letters, OnProgress, Settled, Target
from eventstore.errors import ReplayRefused
from eventstore.topics import DEAD_LETTER_MESSAGE_LENGTH
from projections.faults import TOO_LATE
from projections.logs.offsets import Offsets
from projections.logs.set_aside import FAULTS, SetAside
from projections.stores.layout import GenerationLayout, aside_table
from projections.stores.runs import SERVING
from projections.stores.sql import TableStore


def ensure_set_aside(connection: sa.Connection, layout: GenerationLayout) -> None:
    """Make the table in a generation that was built before there was one."""
    layout.aside.create(connection, checkfirst=True)


def note_set_aside(connection: sa.Connection, layout: GenerationLayout, aside: SetAside) -> None:
    """Note records with their causes; one that is known already stays as it was noted first."""
    rows = [
        {"topic": fault.topic, "partition": fault.partition, "offset": fault.offset, "kind": fault.kind,
         "message": fault.error.message[:DEAD_LETTER_MESSAGE_LENGTH]}
        for fault in aside
    ]  # fmt: skip
    if rows:
        key = [column.name for column in layout.aside.primary_key]
        connection.execute(upsert(connection, layout.aside).on_conflict_do_nothing(index_elements=key), rows)


def note_late(connection: sa.Connection, layout: GenerationLayout) -> dict[str, int]:
    """Note the events that came late, which are staged; returns how many of each kind."""
    if layout.retained is None:
        return {}
    late, names = layout.retained.late, ["topic", "partition", "offset", "kind", "message"]
    key = [column.name for column in layout.aside.primary_key]
    # Without a condition SQLite's parser would take ON CONFLICT for that of a join.
    staged = sa.select(*(late.c[name] for name in names)).where(sa.true())
    noted = upsert(connection, layout.aside).from_select(names, staged)
    connection.execute(noted.on_conflict_do_nothing(index_elements=key))
    by_kind = sa.select(late.c.kind, sa.func.count()).group_by(late.c.kind)
    return {kind: count for kind, count in connection.execute(by_kind)}


def read_set_aside(connection: sa.Connection, layout: GenerationLayout, *, before: Offsets) -> SetAside:
    """The records noted below the given offsets; none in a generation that was built before there was a table.

    Those that came too late are not among them: their records say it to every fold, however many there are.
    """
    if not sa.inspect(connection).has_table(layout.aside.name, schema=layout.aside.schema):
        return SetAside.nothing()
    columns = layout.aside.c
    query = sa.select(columns.topic, columns.partition, columns.offset, columns.kind, columns.message)
    query = query.where(columns.kind != TOO_LATE)
    rows = [row for row in connection.execute(query) if row.offset < before.get(row.topic, {}).get(row.partition, 0)]
    of_names = {name: [row[number] for row in rows] for number, name in enumerate(FAULTS.names)}
    return SetAside(pa.table(of_names, schema=FAULTS))


def set_aside_places(store: TableStore) -> list[tuple[str, str]]:
    """Return the topic and the group of each home: of records that a serving generation has set aside."""
    places: list[tuple[str, str]] = []
    for state in store.states(None, SERVING):
        aside = aside_table(store.space(state.run))
        with store.looking() as connection:
            if sa.inspect(connection).has_table(aside.name, schema=aside.schema):
                topics = connection.scalars(sa.select(aside.c.topic).distinct().order_by(aside.c.topic))
                places += [(topic, state.run.group) for topic in topics]
    return places


class SetAsideLetters(Letters):
    """The records of one topic that a group has set aside. Raises NoServingGeneration, TableStoreUnavailable."""

    def __init__(self, store: TableStore, topic: str, *, group: str) -> None:
        self._store, self._topic, self._group = store, topic, group
        self._run = store.serving_state(group).run
        self._aside = aside_table(store.space(self._run))
        self._rows = ActionRows(group, [topic])

    @property
    def place(self) -> str:
        """Topic, group and generation."""
        return f"{self._topic} set aside by {self._run.place}"

    def actions(self) -> Iterator[Action]:
        """Read the table of actions."""
        with self._store.looking() as connection:
            yield from self._rows.actions(connection)

    def close(self) -> None:
        """Nothing: the store is the caller's."""

    def _fetch(self, on_progress: OnProgress = lambda done, total: None) -> Mapping[str, Letter]:
        """Read the table of the generation, without what was discarded."""
        columns = self._aside.c
        query = sa.select(self._aside).where(columns.topic == self._topic)
        with self._store.looking() as connection:
            if not sa.inspect(connection).has_table(self._aside.name, schema=self._aside.schema):
                return {}
            settled = self._rows.letters(connection)
            rows = connection.execute(query.order_by(columns.time, columns.partition, columns.offset)).all()
        letters = (_letter(row) for row in rows)
        return {letter.id: letter for letter in letters if (letter.id, letter.time) not in settled}

    def _contents(self, letter: Letter) -> Contents:
        """Say where the record is: it stays in the log."""
        return Contents(letter=letter, payload=None, problem=f"the record is in the log, at {letter.origin}")

    def _target(self, to: Target | None) -> Target:
        """Refuse it, for the reason that the module gives."""
        raise ReplayRefused(
            f"records that projection group {self._group!r} has set aside are in its log: it has no other place to go",
            remedy="mend the class, the schema or the gap, then read them again: factfold projections rebuild",
            place=self.place,
        )

    def _settle(self, ids: Collection[str] | None, deed: Deed, on_progress: OnProgress) -> Settled:
        """Leave records out of the list. They stay set aside."""
        with self._store.transaction() as tx:
            self._rows.create(tx)
        letters = self._chosen(ids)
        with self._store.transaction() as tx:
            self._rows.note(tx, self._topic, letters, deed)
        on_progress(len(letters), len(letters))
        return Settled(len(letters))


def _letter(row: sa.Row[Any]) -> Letter:
    place = f"{row.partition}@{row.offset}"
    return Letter(
        id=place,
        origin=f"{row.topic}[{row.partition}]@{row.offset}",
        error=row.kind,
        message=row.message,
        time=None if row.time is None else in_utc(row.time),
        why_not="the record is in the log, and a rebuild reads it again",
    )
