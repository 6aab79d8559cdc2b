"""The dead letters of a subscription that reads a store: rows in the handler's database, their events in the store.

A replay moves the row to the table of actions, where the group's subscriber finds it: no other group notices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Engine, MetaData, Row, delete, inspect, select

from eventstore.backends.sql.checkpoints import checkpoint_name
from eventstore.backends.sql.dead_letters import dead_letters_table
from eventstore.backends.sql.letter_actions import WAITING, ActionRows, action_row, actions_table
from eventstore.backends.sql.transactions import transaction
from eventstore.backends.sql.utc_times import in_utc
from eventstore.deadletters.editing import edited_values
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
    reason,
    require_open,
    require_single,
)
from eventstore.delivery.masking import shown_payload
from eventstore.errors import FactfoldError, LetterMissing, ReplayRefused
from eventstore.fields.plain_json import dump_plain
from eventstore.given_values import require_like
from eventstore.shown_urls import shown_url
from eventstore.topics import message_key

if TYPE_CHECKING:
    from eventstore.backends.sql.store import SqlEventStore
    from eventstore.messages import RecordedEvent

# Letters of one transaction: a subscriber may wait for its lock.
_LETTERS: Final = 200


def store_letters(
    store: SqlEventStore,
    topic: str,
    *,
    group: str,
    engine: Engine | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> SqlLetters:
    """Return the dead letters of a group that reads a topic's category from a store.

    Args:
        store: The store of the events.
        topic: The topic that the subscription names.
        group: The subscription's group.
        engine: The handler's database, by default the store's.
        clock: Gives the times of actions.

    Examples:
        >>> letters = store_letters(store, "payment", group="books")
        >>> letters.replay().count
        2
    """
    require_like(store, "engine", "store", takes="an event store")
    return SqlLetters(store, topic, group=group, engine=engine or store.engine, clock=clock)


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
    """The rows of `factfold_dead_letters` of one group and topic. Raises LetterMissing if there is no such table."""

    def __init__(
        self, store: SqlEventStore, topic: str, *, group: str, engine: Engine, clock: Callable[[], datetime]
    ) -> None:
        self._store, self._engine, self._clock = store, engine, clock
        self._topic = checkpoint_name(topic, store, engine)
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

    def open(self, *, on_progress: OnProgress = lambda done, total: None) -> Iterator[Letter]:
        """Read the rows in the order in which the events were given up."""
        return iter(self._open().values())

    def show(self, letter_id: str) -> Contents:
        """Read the event of a letter from the store."""
        (letter,) = chosen(self._open(), [letter_id], self.place)
        try:
            event = self._store.find(UUID(letter_id))
        except FactfoldError as error:
            return Contents(letter=letter, payload=None, problem=reason(error))
        if event is None:
            return Contents(letter=letter, payload=None, problem="the store does not hold the event")
        return self._contents(letter, event)

    def replay(
        self,
        ids: Collection[str] | None = None,
        *,
        to: Target | None = None,
        edit: Mapping[str, Any] | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Let the group's subscriber deliver the events again. It does so before it reads on."""
        if to not in (None, "group"):
            raise ReplayRefused(
                f"a store is not a {to}: its events are there once, for every group",
                remedy="replay to the group: --to group",
                place=self.place,
            )
        payload = None if edit is None else self._edited(require_single(ids, self.place), edit)
        fields = {"action": "replay", "target": "group", "result": WAITING, "waits": True, "payload": payload}
        self._make_table()
        return self._settle(ids, fields, by, on_progress)

    def discard(
        self,
        ids: Collection[str] | None = None,
        *,
        why: str | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Settle letters. Their events stay in the store.

        A replay that waits is withdrawn, if its letter is named: one that makes its handler hang stops the subscriber.
        """
        fields = {"action": "discard", "result": "discarded", "waits": False, "why": why}
        self._make_table()
        withdrawn = set() if ids is None else self._withdraw(ids, fields, by)
        others = None if ids is None else [one for one in ids if one not in withdrawn]
        settled = self._settle(others, fields, by, on_progress)
        return Settled(settled.count + len(withdrawn), settled.left)

    def actions(self) -> Iterator[Action]:
        """Read the table of actions."""
        with transaction(self._engine) as tx:
            yield from self._rows.actions(tx)

    def close(self) -> None:
        """Nothing: the store and the engine are the caller's."""

    def _open(self) -> dict[str, Letter]:
        columns = self._table.c
        with transaction(self._engine) as tx:
            rows = tx.execute(select(self._table).where(*self._own).order_by(columns.time, columns.event_id)).all()
        return {letter.id: letter for letter in map(_letter, rows)}

    def _contents(self, letter: Letter, event: RecordedEvent) -> Contents:
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

    def _edited(self, letter_id: str, edit: Mapping[str, Any]) -> str:
        require_open([letter_id], self._open(), self.place)
        event = self._store.find(UUID(letter_id))
        if event is None:
            raise ReplayRefused(
                f"the event of letter {letter_id} is not in the store: its stream was deleted",
                remedy="discard the letter",
                place=self.place,
            )
        schema = self._store.schema(event.schema_id)
        return dump_plain(edited_values(schema, event.data, edit, place=f"{event.stream}@{event.version}"))

    def _make_table(self) -> None:
        with transaction(self._engine) as tx:
            self._rows.create(tx)

    def _settle(
        self, ids: Collection[str] | None, fields: Mapping[str, Any], by: str | None, on_progress: OnProgress
    ) -> Settled:
        moved = [UUID(letter.id) for letter in chosen(self._open(), ids, self.place)]
        actor, count = by or operator(), 0
        for begin in range(0, len(moved), _LETTERS):
            count += self._move(moved[begin : begin + _LETTERS], {**fields, "operator": actor})
            on_progress(min(begin + _LETTERS, len(moved)), len(moved))
        return Settled(count)

    def _withdraw(self, ids: Collection[str], fields: Mapping[str, Any], by: str | None) -> set[str]:
        action = {**fields, "operator": by or operator(), "time": self._clock()}
        with transaction(self._engine) as tx:
            return self._rows.withdraw(tx, ids, action)

    def _move(self, ids: list[UUID], fields: Mapping[str, Any]) -> int:
        """Move rows to the table of actions in one transaction, but those that another command has moved."""
        taken = delete(self._table).where(*self._own, self._table.c.event_id.in_(ids)).returning(self._table)
        with transaction(self._engine) as tx:
            rows = tx.execute(taken).all()
            done = [action_row(one, topic=self._topic, time=self._clock(), **fields) for one in map(_letter, rows)]
            self._rows.write(tx, done)
        return len(rows)

    def _require_home(self) -> None:
        with transaction(self._engine) as tx:
            if inspect(tx).has_table(self._table.name):
                return
        raise LetterMissing(
            f"the database has no table {self._table.name}: no subscription reads a store with it",
            remedy="name the handler's database: --inbox-url, in Python engine=. Letters of a Kafka topic need no "
            "--inbox-url, in Python group_letters",
            place=shown_url(self._engine.url),
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
