"""The dead letters of subscriptions that read a store, in the handler's database: one row a group, topic and event.

The topic has the store's schema in it where that is not the default one. Two tenants that imported the same events, or
two topics of one group, have a row each.

The table of what was done with dead letters, next to those letters: an audit, and the replays that wait.

A letter of a store is a row. Settling it moves the row here, in one transaction: it is in one of the two tables.

Replays of a store's dead letters: their events are delivered once more, before what is new.

A replay waits in the table of actions. The subscriber reads its event from the store, and ends the replay in the
transaction of the handler's effects: it is delivered until that is committed, and not once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import sqlalchemy as sa

from eventstore.backends.sql.dialect import blaming_no_record, transaction
from eventstore.backends.sql.store import SqlEventStore
from eventstore.backends.sql.values import UtcDateTime, keys, needed
from eventstore.backends.sql.ways import create_missing
from eventstore.deadletters.letters import Action, Deed, Letter
from eventstore.errors import CheckpointMoved
from eventstore.fields.plain_json import load_plain
from eventstore.personal.sealing import Disclosed
from eventstore.store import RecordedEvent


def dead_letters_table(metadata: sa.MetaData) -> sa.Table:
    """Describe the table `factfold_dead_letters`."""
    return sa.Table(
        "factfold_dead_letters",
        metadata,
        *keys("subscriber", "topic"),
        sa.Column("event_id", sa.Uuid, primary_key=True),
        *needed(sa.Text, "stream"),
        *needed(sa.Integer, "version"),
        *needed(sa.Text, "error", "message"),
        *needed(sa.Integer, "attempts"),
        *needed(sa.DateTime(timezone=True), "time"),
    )


WAITING: Final = "waiting"
HANDLED: Final = "handled"
DEAD: Final = "dead"
DELETED: Final = "deleted"
WITHDRAWN: Final = "withdrawn"

_WAITS: Final = sa.text("waits")


def actions_table(metadata: sa.MetaData) -> sa.Table:
    """Describe the table `factfold_dead_letter_actions`. `payload` is that of an edit, as `plain_json` writes it."""
    table = sa.Table(
        "factfold_dead_letter_actions",
        metadata,
        sa.Column("id", sa.Uuid, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("subscriber", "topic", "letter", "origin", "action")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("operator", "result", "error", "message")),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("event_id", sa.Uuid),
        *(sa.Column(name, sa.Text) for name in ("target", "payload", "why")),
        sa.Column("given_up", UtcDateTime),
        sa.Column("time", UtcDateTime, nullable=False),
        sa.Column("waits", sa.Boolean, nullable=False),
    )
    # Polled by every subscriber that reads a store; nearly all rows are done.
    columns = table.c.subscriber, table.c.topic, table.c.given_up
    sa.Index("factfold_dead_letters_waiting", *columns, postgresql_where=_WAITS, sqlite_where=_WAITS)
    return table


class ActionRows:
    """The rows of one group's actions, of one topic or several. Call `create` before you write."""

    def __init__(self, group: str, topics: Collection[str]) -> None:
        self._metadata = sa.MetaData()
        self.table = actions_table(self._metadata)
        self._own = (self.table.c.subscriber == group, self.table.c.topic.in_(sorted(topics)))
        self._group = group

    def create(self, tx: sa.Connection) -> None:
        """Make the table if it is missing."""
        create_missing(tx, self._metadata)

    def note(
        self, tx: sa.Connection, topic: str, letters: Iterable[Letter], deed: Deed, payload: str | None = None
    ) -> None:
        """Add a row of each letter that a deed settles, with the payload of an edit."""
        self._write(tx, [_row(letter, deed, topic, payload) for letter in letters])

    def _write(self, tx: sa.Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        if given := [{"subscriber": self._group, **row} for row in rows]:
            tx.execute(sa.insert(self.table), given)

    def waiting(self, tx: sa.Connection, *, limit: int) -> list[sa.Row[Any]]:
        """Return replays that wait, in the order in which their letters were given up."""
        columns = self.table.c
        query = sa.select(columns.id, columns.event_id, columns.payload).where(*self._own, columns.waits)
        return list(tx.execute(query.order_by(columns.given_up, columns.id).limit(limit)))

    def end(self, tx: sa.Connection, ids: Collection[Any], result: str) -> int:
        """Note what became of replays that wait, and return how many did."""
        columns = self.table.c
        ended = self.table.update().where(*self._own, columns.id.in_(ids), columns.waits)
        return tx.execute(ended.values(waits=False, result=result)).rowcount

    def withdraw(self, tx: sa.Connection, letters: Collection[str], deed: Deed) -> set[str]:
        """End replays of letters that wait, and note the deed that ends them. Return the letters that waited."""
        columns = self.table.c
        waiting = self.table.update().where(*self._own, columns.letter.in_(letters), columns.waits)
        rows = tx.execute(waiting.values(waits=False, result=WITHDRAWN).returning(self.table)).mappings().all()
        self._write(tx, [{**row, "payload": None, **_done(deed)} for row in rows])
        return {row["letter"] for row in rows}

    def letters(self, tx: sa.Connection) -> set[tuple[str, datetime | None]]:
        """Return the letters that were settled, and when each was given up. Without the table there are none."""
        if not sa.inspect(tx).has_table(self.table.name):
            return set()
        query = sa.select(self.table.c.letter, self.table.c.given_up).where(*self._own)
        return {(row.letter, row.given_up) for row in tx.execute(query)}

    def actions(self, tx: sa.Connection) -> Iterator[Action]:
        """Yield what was done, the oldest first. Without the table there is nothing."""
        if not sa.inspect(tx).has_table(self.table.name):
            return
        order = (self.table.c.time, self.table.c.given_up, self.table.c.id)
        for row in tx.execute(sa.select(self.table).where(*self._own).order_by(*order)):
            yield _action(row)


def _row(letter: Letter, deed: Deed, topic: str, payload: str | None) -> dict[str, Any]:
    """Return the row of a letter that is settled: what the letter says, and what is done with it."""
    return {
        "topic": topic, "letter": letter.id, "origin": letter.origin, "error": letter.error,
        "message": letter.message, "attempts": letter.attempts, "given_up": letter.time, "payload": payload,
        "event_id": None if letter.event_id is None else UUID(letter.event_id), **_done(deed),
    }  # fmt: skip


def _done(deed: Deed) -> dict[str, Any]:
    return {
        "id": uuid4(), "action": deed.action, "operator": deed.by, "time": datetime.now(UTC), "result": deed.result,
        "target": deed.to, "why": deed.why, "waits": deed.result == WAITING,
    }  # fmt: skip


def _action(row: sa.Row[Any]) -> Action:
    event_id = None if row.event_id is None else str(row.event_id)
    same = {name: getattr(row, name) for name in ("letter", "origin", "action", "time", "result", "why")}
    return Action(**same, by=row.operator, to=row.target, edited=row.payload is not None, event_id=event_id)


# Each is looked up by its id.
_MOST: Final = 200


class LetterReplay(NamedTuple):
    """An event to be delivered again, with its edited payload, if it has one."""

    id: UUID
    event: RecordedEvent


class LetterReplays:
    """The replays of one group's letters, by the names under which its topics are stored."""

    def __init__(self, store: SqlEventStore, engine: sa.Engine, group: str, topics: Collection[str]) -> None:
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

    def handled(self, tx: sa.Connection, ids: Collection[UUID]) -> None:
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

    def died(self, tx: sa.Connection, replay_id: UUID) -> None:
        """End a replay in the transaction that makes its event a dead letter again."""
        self._rows.end(tx, [replay_id], DEAD)
        self._buried.add(replay_id)


def _edited(event: RecordedEvent, row: sa.Row[Any]) -> RecordedEvent:
    if row.payload is None:
        return event
    data: Mapping[str, Any] = {**event.data, **load_plain(row.payload)}
    if isinstance(event.data, Disclosed):
        data = Disclosed(data, event.data.erased, event.data.personal)
    return replace(event, data=data)
