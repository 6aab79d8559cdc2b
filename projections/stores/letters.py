"""The records that a projection group has set aside, as dead letters of the generation that serves.

They are looked at and discarded here. They are not replayed: their records are in the log, and a rebuild reads them
again once the class, the schema or the missing event is there. A discarded record stays set aside in its generation,
whose verification leaves it out. It is not listed, until a rebuild sets it aside again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from eventstore.backends.sql.letter_rows import ActionRows
from eventstore.backends.sql.values import in_utc
from eventstore.deadletters.letters import Action, Contents, Deed, Letter, Letters, OnProgress, Settled, Target
from eventstore.errors import ReplayRefused
from projections.stores.layout import aside_table, generation_name
from projections.stores.sql import TableStore


def set_aside_topics(store: TableStore, group: str) -> list[str]:
    """Return the topics whose records the serving generation of a group has set aside. Raises NoServingGeneration."""
    run = store.serving_state(group).run
    aside = aside_table(store.dialect.name_space(generation_name(group, run.generation)))
    with store.looking() as connection:
        if not sa.inspect(connection).has_table(aside.name, schema=aside.schema):
            return []
        return list(connection.execute(sa.select(aside.c.topic).distinct().order_by(aside.c.topic)).scalars())


class SetAsideLetters(Letters):
    """The records of one topic that a group has set aside. Raises NoServingGeneration, TableStoreUnavailable."""

    def __init__(self, store: TableStore, topic: str, *, group: str) -> None:
        self._store, self._topic, self._group = store, topic, group
        self._run = store.serving_state(group).run
        self._aside = aside_table(store.dialect.name_space(generation_name(group, self._run.generation)))
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
