"""The dead letters of a subscription that reads a store: rows in the handler's database, their events in the store.

A replay moves the row to the table of actions, where the group's subscriber finds it: no other group notices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Engine, MetaData, Row, delete, inspect, select

from eventstore.backends.sql.dialect import transaction
from eventstore.backends.sql.letter_rows import WAITING, ActionRows, actions_table, dead_letters_table
from eventstore.backends.sql.source import checkpoint_name
from eventstore.backends.sql.store import SqlEventStore
from eventstore.backends.sql.values import in_utc
from eventstore.deadletters.letters import (
    Action,
    Contents,
    Deed,
    Letter,
    Letters,
    OnProgress,
    Settled,
    Target,
    reason,
)
from eventstore.deadletters.records import edited_values
from eventstore.delivery.source import shown_payload
from eventstore.errors import FactfoldError, NotFound, ReplayRefused
from eventstore.fields.plain_json import dump_plain
from eventstore.shown_urls import shown_url
from eventstore.topics import message_key

# Letters of one transaction: a subscriber may wait for its lock.
_LETTERS: Final = 200


def letter_places(store: SqlEventStore, *, engine: Engine | None = None) -> list[tuple[str, str]]:
    """Return the topic and the group of each home with letters of this store, settled ones included."""
    handlers, metadata = engine or store.engine, MetaData()
    suffix, homes = checkpoint_name("", store, handlers), set[tuple[str, str]]()
    with transaction(handlers) as tx:
        for table in (dead_letters_table(metadata), actions_table(metadata)):
            if inspect(tx).has_table(table.name):
                columns = table.c
                homes |= {
                    (row.topic, row.subscriber)
                    for row in tx.execute(select(columns.topic, columns.subscriber).distinct())
                }
    own = ((topic.partition("@"), group) for topic, group in homes)
    return sorted((topic, group) for (topic, at, name), group in own if f"{at}{name}" == suffix)


class SqlLetters(Letters):
    """The rows of `factfold_dead_letters` of one group and topic. Raises NotFound if there is no such table."""

    _replayed = WAITING

    def __init__(self, store: SqlEventStore, topic: str, *, group: str, engine: Engine | None = None) -> None:
        self._store, self._engine = store, engine or store.engine
        self._topic = checkpoint_name(topic, store, self._engine)
        self._group = group
        self._table = dead_letters_table(MetaData())
        self._rows = ActionRows(group, [self._topic])
        columns = self._table.c
        self._own = (columns.subscriber == group, columns.topic == self._topic)
        self._require_home()

    @property
    def place(self) -> str:
        """Topic, group and database."""
        return f"{self._topic} {self._group} in {shown_url(self._engine.url)}"

    def actions(self) -> Iterator[Action]:
        """Read the table of actions."""
        with transaction(self._engine) as tx:
            yield from self._rows.actions(tx)

    def close(self) -> None:
        """Nothing: the store and the engine are the caller's."""

    def _fetch(self, on_progress: OnProgress = lambda done, total: None) -> Mapping[str, Letter]:
        """Read the rows in the order in which the events were given up."""
        columns = self._table.c
        with transaction(self._engine) as tx:
            rows = tx.execute(select(self._table).where(*self._own).order_by(columns.time, columns.event_id)).all()
        return {letter.id: letter for letter in map(_letter, rows)}

    def _contents(self, letter: Letter) -> Contents:
        """Read the event of a letter from the store."""
        try:
            event = self._store.find(UUID(letter.id))
        except FactfoldError as error:
            return Contents(letter=letter, payload=None, problem=reason(error))
        if event is None:
            return Contents(letter=letter, payload=None, problem="the store does not hold the event")
        headers = {"ce_id": event.id, "ce_type": event.type, "ce_subject": event.stream,
                   "ce_time": event.time.isoformat(), "ce_streamversion": event.version,
                   "ce_correlationid": event.metadata.correlation_id, "ce_causationid": event.metadata.causation_id,
                   "traceparent": event.metadata.traceparent}  # fmt: skip
        return Contents(
            letter=replace(letter, type=event.type),
            payload=shown_payload(self._store.schema(event.schema_id), event.data),
            key=message_key(event.stream, event.version),
            headers={name: str(value) for name, value in headers.items() if value is not None},
        )

    def _target(self, to: Target | None) -> Target:
        if to not in (None, "group"):
            raise ReplayRefused(
                f"a store is not a {to}: its events are there once, for every group",
                remedy="replay to the group: --to group",
                place=self.place,
            )
        return "group"

    def _settle(self, ids: Collection[str] | None, deed: Deed, on_progress: OnProgress) -> Settled:
        """Let the group's subscriber deliver replayed events before it reads on. Events stay in the store.

        A replay that waits is withdrawn by a discard that names its letter: a handler that hangs stops the subscriber.
        """
        withdrawn: set[str] = set()
        with transaction(self._engine) as tx:
            self._rows.create(tx)
            if deed.action == "discard" and ids is not None:
                withdrawn = self._rows.withdraw(tx, ids, deed)
        letters = self._chosen(None if ids is None else [one for one in ids if one not in withdrawn])
        payload = None if deed.edit is None else self._edited(letters[0], deed.edit)
        moved, count = [UUID(letter.id) for letter in letters], 0
        for begin in range(0, len(moved), _LETTERS):
            count += self._move(moved[begin : begin + _LETTERS], deed, payload)
            on_progress(min(begin + _LETTERS, len(moved)), len(moved))
        return Settled(count + len(withdrawn))

    def _edited(self, letter: Letter, edit: Mapping[str, Any]) -> str:
        event = self._store.find(UUID(letter.id))
        if event is None:
            raise ReplayRefused(
                f"the event of letter {letter.id} is not in the store: its stream was deleted",
                remedy="discard the letter",
                place=self.place,
            )
        schema = self._store.schema(event.schema_id)
        return dump_plain(edited_values(schema, event.data, edit, place=f"{event.stream}@{event.version}"))

    def _move(self, ids: list[UUID], deed: Deed, payload: str | None) -> int:
        """Move rows to the table of actions in one transaction, but those that another command has moved."""
        taken = delete(self._table).where(*self._own, self._table.c.event_id.in_(ids)).returning(self._table)
        with transaction(self._engine) as tx:
            letters = [_letter(row) for row in tx.execute(taken).all()]
            self._rows.note(tx, self._topic, letters, deed, payload)
        return len(letters)

    def _require_home(self) -> None:
        with transaction(self._engine) as tx:
            if inspect(tx).has_table(self._table.name):
                return
        raise NotFound(
            f"the database has no table {self._table.name}: no subscription reads a store with it",
            remedy="name the handler's database: --inbox-url, in Python engine=. Letters of a Kafka topic need no "
            "--inbox-url, in Python letters(settings, …)",
            place=shown_url(self._engine.url),
            code="letter-missing",
        )


def _letter(row: Row[Any]) -> Letter:
    return Letter(
        id=str(row.event_id),
        origin=f"{row.stream}@{row.version}",
        error=row.error,
        message=row.message,
        attempts=row.attempts,
        time=in_utc(row.time),
        event_id=str(row.event_id),
        stream=row.stream,
    )
