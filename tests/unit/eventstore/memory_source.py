"""A source of events in memory: says what was acknowledged, and fails at whatever step it is told to."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from eventstore import Position, RecordedEvent
from eventstore.delivery.source import Lag
from eventstore.event_types import event_type_of
from eventstore.store import NO_METADATA
from tests.ledger import Payment


def recorded(amount, *, kind=Payment.Received, stream="payment-1", data=None):
    found = event_type_of(kind)
    return RecordedEvent(
        id=uuid.uuid4(),
        stream=stream,
        version=amount,
        type=found.name,
        schema_id=found.schema_id,
        data={"amount": amount} if data is None else data,
        metadata=NO_METADATA,
        time=datetime.now(UTC),
        position=Position(0, amount),
    )


@dataclass
class MemoryArrival:
    event: RecordedEvent | None
    place: str
    problem: Exception | None = None
    topic: str | None = None
    retries: int = 0

    @property
    def type(self):
        return None if self.event is None else self.event.type

    @property
    def id(self):
        return self.event.id.hex

    @property
    def schema_version(self):
        return self.event.schema_version

    @property
    def data(self):
        return self.event.data

    def recorded(self):
        return self.event


def arrivals(*amounts):
    """Payments received, at places named after their amounts."""
    return [MemoryArrival(recorded(amount), str(amount)) for amount in amounts]


class MemorySource:
    def __init__(self, *batches, fails=(), checkpoint_name="payments"):
        self.topic = checkpoint_name
        self.waiting = list(batches)
        self.acknowledged = []
        self.dead = []
        self.taken = []
        self.postponed = []
        self.alive = 0
        self.closed = False
        self.on_revoked = None
        self.during_keep_alive = None
        self.fails = dict(fails)

    def checkpoint_name(self, arrival):
        return arrival.topic or self.topic

    def key_of(self, arrival):
        return arrival.place if arrival.event is None else arrival.event.stream

    def open(self, on_revoked):
        self.on_revoked = on_revoked

    def poll(self, timeout):
        self._step("poll")
        return self.waiting.pop(0) if self.waiting else []

    def prepare(self):
        self._step("prepare")

    def keep_alive(self):
        self.alive += 1
        if self.during_keep_alive is not None:
            self.during_keep_alive()

    def checkpoint(self, tx, done):
        self._step("checkpoint")

    def take(self, arrivals):
        self._step("take")
        self.taken += [arrival.place for arrival in arrivals]
        return arrivals

    def acknowledge(self, done):
        self._step("acknowledge")
        self.acknowledged += [arrival.place for arrival in done]

    def give_back(self, left):
        self.waiting.insert(0, list(left))

    def dead_letter(self, letter):
        self._step("dead_letter")
        self.dead.append(letter)

    def postpone(self, letter, after):
        self._step("postpone")
        self.postponed.append((letter, after))

    def lag(self):
        return Lag(())

    def close(self):
        self.closed = True

    def _step(self, name):
        """Raise what is planned for this step, once for each error in its list."""
        planned = self.fails.get(name, [])
        if planned:
            raise planned.pop(0)
