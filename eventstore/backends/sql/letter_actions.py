"""The table of what was done with dead letters, next to those letters: an audit, and the replays that wait.

A letter of a store is a row. Settling it moves the row here, in one transaction: it is in one of the two tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    Row,
    Table,
    Text,
    Uuid,
    insert,
    inspect,
    select,
    text,
)

from eventstore.backends.sql.utc_times import UtcDateTime
from eventstore.backends.sql.ways import create_missing
from eventstore.deadletters.letters import Action, Deed, Letter

WAITING: Final = "waiting"
HANDLED: Final = "handled"
DEAD: Final = "dead"
DELETED: Final = "deleted"
WITHDRAWN: Final = "withdrawn"

_WAITS: Final = text("waits")


def actions_table(metadata: MetaData) -> Table:
    """Describe the table `factfold_dead_letter_actions`. `payload` is that of an edit, as `plain_json` writes it."""
    table = Table(
        "factfold_dead_letter_actions",
        metadata,
        Column("id", Uuid, primary_key=True),
        *(Column(name, Text, nullable=False) for name in ("subscriber", "topic", "letter", "origin", "action")),
        *(Column(name, Text, nullable=False) for name in ("operator", "result", "error", "message")),
        Column("attempts", Integer, nullable=False),
        Column("event_id", Uuid),
        *(Column(name, Text) for name in ("target", "payload", "why")),
        Column("given_up", UtcDateTime),
        Column("time", UtcDateTime, nullable=False),
        Column("waits", Boolean, nullable=False),
    )
    # Polled by every subscriber that reads a store; nearly all rows are done.
    columns = table.c.subscriber, table.c.topic, table.c.given_up
    Index("factfold_dead_letters_waiting", *columns, postgresql_where=_WAITS, sqlite_where=_WAITS)
    return table


class ActionRows:
    """The rows of one group's actions, of one topic or several. Call `create` before you write."""

    def __init__(self, group: str, topics: Collection[str]) -> None:
        self._metadata = MetaData()
        self.table = actions_table(self._metadata)
        self._own = (self.table.c.subscriber == group, self.table.c.topic.in_(sorted(topics)))
        self._group = group

    def create(self, tx: Connection) -> None:
        """Make the table if it is missing."""
        create_missing(tx, self._metadata)

    def note(
        self, tx: Connection, topic: str, letters: Iterable[Letter], deed: Deed, payload: str | None = None
    ) -> None:
        """Add a row of each letter that a deed settles, with the payload of an edit."""
        self._write(tx, [_row(letter, deed, topic, payload) for letter in letters])

    def _write(self, tx: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        if given := [{"subscriber": self._group, **row} for row in rows]:
            tx.execute(insert(self.table), given)

    def waiting(self, tx: Connection, *, limit: int) -> list[Row[Any]]:
        """Return replays that wait, in the order in which their letters were given up."""
        columns = self.table.c
        query = select(columns.id, columns.event_id, columns.payload).where(*self._own, columns.waits)
        return list(tx.execute(query.order_by(columns.given_up, columns.id).limit(limit)))

    def end(self, tx: Connection, ids: Collection[Any], result: str) -> int:
        """Note what became of replays that wait, and return how many did."""
        columns = self.table.c
        ended = self.table.update().where(*self._own, columns.id.in_(ids), columns.waits)
        return tx.execute(ended.values(waits=False, result=result)).rowcount

    def withdraw(self, tx: Connection, letters: Collection[str], deed: Deed) -> set[str]:
        """End replays of letters that wait, and note the deed that ends them. Return the letters that waited."""
        columns = self.table.c
        waiting = self.table.update().where(*self._own, columns.letter.in_(letters), columns.waits)
        rows = tx.execute(waiting.values(waits=False, result=WITHDRAWN).returning(self.table)).mappings().all()
        self._write(tx, [{**row, "payload": None, **_done(deed)} for row in rows])
        return {row["letter"] for row in rows}

    def letters(self, tx: Connection) -> set[tuple[str, datetime | None]]:
        """Return the letters that were settled, and when each was given up. Without the table there are none."""
        if not inspect(tx).has_table(self.table.name):
            return set()
        query = select(self.table.c.letter, self.table.c.given_up).where(*self._own)
        return {(row.letter, row.given_up) for row in tx.execute(query)}

    def actions(self, tx: Connection) -> Iterator[Action]:
        """Yield what was done, the oldest first. Without the table there is nothing."""
        if not inspect(tx).has_table(self.table.name):
            return
        order = (self.table.c.time, self.table.c.given_up, self.table.c.id)
        for row in tx.execute(select(self.table).where(*self._own).order_by(*order)):
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


def _action(row: Row[Any]) -> Action:
    return Action(
        letter=row.letter,
        origin=row.origin,
        action=row.action,
        by=row.operator,
        time=row.time,
        result=row.result,
        event_id=None if row.event_id is None else str(row.event_id),
        to=row.target,
        edited=row.payload is not None,
        why=row.why,
    )
