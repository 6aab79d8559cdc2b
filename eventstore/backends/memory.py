"""An event store in the memory of this process, for tests of services."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from eventstore.backends.sql.engines import engine_in_memory
from eventstore.backends.sql.store import SqlEventStore
from eventstore.erasure import KeyStore, MasterKeys
from eventstore.topics import DEFAULT_SOURCE


class MemoryEventStore(SqlEventStore):
    """An event store for threads of one process, in an SQLite database in memory. Nothing is written anywhere.

    It has its tables and keys from the start.

    Args:
        source: The CloudEvents source of all events.
        clock: Gives the time of events.
        new_id: Makes the ids of events that come without one, by default UUIDs of version 7.
        keys: A key store, for events with personal fields.

    Examples:
        >>> service = Dispatcher(MemoryEventStore())
    """

    def __init__(
        self,
        *,
        source: str = DEFAULT_SOURCE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], UUID] | None = None,
        keys: KeyStore | MasterKeys | None = None,
    ) -> None:
        keys = MasterKeys({"memory": os.urandom(32)}) if keys is None else keys
        super().__init__(engine_in_memory(), source=source, clock=clock, new_id=new_id, keys=keys)
        self.create_tables()
