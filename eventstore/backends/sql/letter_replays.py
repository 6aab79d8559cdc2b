"""Replays of a store's dead letters: their events are delivered once more, before what is new.

A replay waits in the table of actions. The subscriber reads its event from the store, and ends the replay in the
transaction of the handler's effects: it is delivered until that is committed, and not once more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, Row

from eventstore.backends.sql.letter_actions import DEAD, DELETED, HANDLED, ActionRows
from eventstore.backends.sql.transactions import blaming_no_record, transaction
from eventstore.errors import CheckpointMoved
from eventstore.fields.plain_json import load_plain
from eventstore.messages import RecordedEvent
from eventstore.personal.sealing import Disclosed

if TYPE_CHECKING:
    from eventstore.backends.sql.store import SqlEventStore

# Each is looked up by its id.
_MOST: Final = 200


class LetterReplay(NamedTuple):
    """An event to be delivered again, with its edited payload, if it has one."""

    id: UUID
    event: RecordedEvent


class LetterReplays:
    """The replays of one group's letters, by the names under which its topics are stored."""

    def __init__(self, store: SqlEventStore, engine: Engine, group: str, topics: Collection[str]) -> None:
        self._store, self._engine = store, engine
        self._rows = ActionRows(group, topics)
        self._group = group
        self._buried: set[UUID] = set()

    def open(self) -> None:
        """Make the table if it is missing."""
        with transaction(self._engine) as tx:
            self._rows.create(tx)

    def waiting(self, *, limit: int) -> list[LetterReplay]:
        """Return what is to be delivered again. The replay of a deleted event ends here: nothing is left of it."""
        with transaction(self._engine) as tx, blaming_no_record(tx.engine):
            rows = self._rows.waiting(tx, limit=min(limit, _MOST))
        pairs = [(row, self._store.find(row.event_id)) for row in rows]
        if deleted := [row.id for row, event in pairs if event is None]:
            with transaction(self._engine) as tx:
                self._rows.end(tx, deleted, DELETED)
        return [LetterReplay(row.id, _edited(event, row)) for row, event in pairs if event is not None]

    def handled(self, tx: Connection, ids: Collection[UUID]) -> None:
        """End replays in the transaction of their effects. Raises CheckpointMoved if another subscriber did."""
        left = set(ids) - self._buried
        self._buried -= set(ids)
        with blaming_no_record(tx.engine):
            if left and self._rows.end(tx, left, HANDLED) != len(left):
                raise CheckpointMoved(
                    f"another subscriber of group {self._group!r} handled a replayed dead letter",
                    remedy="run one subscriber of the group on a store, or read a topic",
                    place=self._group,
                )

    def died(self, tx: Connection, replay_id: UUID) -> None:
        """End a replay in the transaction that makes its event a dead letter again."""
        self._rows.end(tx, [replay_id], DEAD)
        self._buried.add(replay_id)


def _edited(event: RecordedEvent, row: Row[Any]) -> RecordedEvent:
    if row.payload is None:
        return event
    data: Mapping[str, Any] = {**event.data, **load_plain(row.payload)}
    if isinstance(event.data, Disclosed):
        data = Disclosed(data, event.data.erased, event.data.personal)
    return replace(event, data=data)
