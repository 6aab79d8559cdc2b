"""The records that a projection group has set aside, as dead letters of the generation that serves.

They are looked at and discarded here. They are not replayed: their records are in the log, and a rebuild reads them
again once the class, the schema or the missing event is there. A discarded record stays set aside in its generation,
whose verification leaves it out. It is not listed, until a rebuild sets it aside again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from eventstore.backends.sql.letter_actions import ActionRows, action_row
from eventstore.backends.sql.utc_times import in_utc
from eventstore.deadletters.letters import (
    Action,
    Contents,
    Letter,
    Letters,
    OnProgress,
    Settled,
    Target,
    chosen,
    operator,
)
from eventstore.errors import ReplayRefused
from projections.stores.layout import aside_table, generation_name
from projections.stores.sql import SqlTableStore

if TYPE_CHECKING:
    from projections.stores.port import TableStore


def set_aside_letters(
    store: TableStore[Any],
    topic: str,
    *,
    group: str,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> SetAsideLetters:
    """Return the records of a topic that a group has set aside, from ``environment.store``.

    Raises NoServingGeneration or TableStoreUnavailable.

    Examples:
        >>> for letter in set_aside_letters(environment.store, "order", group="shop").open():
        ...     print(letter.origin, letter.error)
        order[0]@17 behind_a_gap
    """
    assert isinstance(store, SqlTableStore)  # noqa: S101 - there is no other kind
    return SetAsideLetters(store, topic, group=group, clock=clock)


def set_aside_topics(store: SqlTableStore, group: str) -> list[str]:
    """Return the topics whose records the serving generation of a group has set aside. Raises NoServingGeneration."""
    run = store.serving_state(group).run
    aside = aside_table(store.dialect.name_space(generation_name(group, run.generation)))
    with store.looking() as connection:
        if not sa.inspect(connection).has_table(aside.name, schema=aside.schema):
            return []
        return list(connection.execute(sa.select(aside.c.topic).distinct().order_by(aside.c.topic)).scalars())


class SetAsideLetters(Letters):
    """The records of one topic that a group has set aside. Raises NoServingGeneration, TableStoreUnavailable."""

    def __init__(
        self,
        store: SqlTableStore,
        topic: str,
        *,
        group: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._topic, self._group, self._clock = store, topic, group, clock
        run = store.serving_state(group).run
        self._aside = aside_table(store.dialect.name_space(generation_name(group, run.generation)))
        self._rows = ActionRows(group, [topic])
        self._run = run

    @property
    def place(self) -> str:
        """Topic, group and generation."""
        return f"{self._topic} set aside by {self._run.place}"

    def open(self, *, on_progress: OnProgress = lambda done, total: None) -> Iterator[Letter]:
        """Read the table of the generation, without what was discarded."""
        return iter(self._open().values())

    def show(self, letter_id: str) -> Contents:
        """Say where the record is: it stays in the log."""
        (letter,) = chosen(self._open(), [letter_id], self.place)
        return Contents(letter=letter, payload=None, problem=f"the record is in the log, at {letter.origin}")

    def replay(
        self,
        ids: Collection[str] | None = None,
        *,
        to: Target | None = None,
        edit: Mapping[str, Any] | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Refuse it, for the reason that the module gives."""
        raise ReplayRefused(
            f"records that projection group {self._group!r} has set aside are in its log: it has no other place to go",
            remedy="mend the class, the schema or the gap, then read them again: factfold projections rebuild",
            place=self.place,
        )

    def discard(
        self,
        ids: Collection[str] | None = None,
        *,
        why: str | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Leave records out of the list. They stay set aside."""
        with self._store.transaction() as tx:
            self._rows.create(tx)
        letters = chosen(self._open(), ids, self.place)
        actor = by or operator()
        with self._store.transaction() as tx:
            self._rows.write(tx, [self._row(letter, why, actor) for letter in letters])
        on_progress(len(letters), len(letters))
        return Settled(len(letters))

    def actions(self) -> Iterator[Action]:
        """Read the table of actions."""
        with self._store.looking() as connection:
            yield from self._rows.actions(connection)

    def close(self) -> None:
        """Nothing: the store is the caller's."""

    def _open(self) -> dict[str, Letter]:
        columns = self._aside.c
        query = sa.select(self._aside).where(columns.topic == self._topic)
        with self._store.looking() as connection:
            if not sa.inspect(connection).has_table(self._aside.name, schema=self._aside.schema):
                return {}
            settled = self._rows.letters(connection)
            rows = connection.execute(query.order_by(columns.time, columns.partition, columns.offset)).all()
        letters = (_letter(row) for row in rows)
        return {letter.id: letter for letter in letters if (letter.id, letter.time) not in settled}

    def _row(self, letter: Letter, why: str | None, by: str) -> dict[str, Any]:
        done = {"action": "discard", "operator": by, "result": "discarded", "why": why, "waits": False}
        return action_row(letter, topic=self._topic, time=self._clock(), **done)


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
