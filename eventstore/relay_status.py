"""The records of a relay: what it has published, and what the topics do not hold yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eventstore.backends.sql.outbox import Waiting


@dataclass(frozen=True, slots=True)
class RelayReport:
    """What a relay has published since it was started.

    Attributes:
        events: Records of events.
        schemas: Records of schemas.
        transactions: The Kafka transactions of these records.

    Examples:
        >>> Relay(store, Settings()).run(stop=Event(), once=True).events
        42
    """

    events: int = 0
    schemas: int = 0
    transactions: int = 0

    def plus(self, *, events: int, schemas: int) -> RelayReport:
        """Return the report after one more transaction."""
        return RelayReport(self.events + events, self.schemas + schemas, self.transactions + 1)


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """The leader, None if no relay leads, and what each category's topic does not hold yet.

    Examples:
        >>> relay_status(store, Settings()).leader
        'factfold relay on relay-1 (process 4711 of the database)'
    """

    leader: str | None
    waiting: tuple[Waiting, ...]
