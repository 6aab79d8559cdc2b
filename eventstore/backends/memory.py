"""An event store in the memory of this process, for tests of services."""

from __future__ import annotations

import os
from typing import Unpack

from eventstore.backends.sql.engines import engine_in_memory
from eventstore.backends.sql.store import SqlEventStore, StoreOptions
from eventstore.erasure import MasterKeys


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

    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        if options.get("keys") is None:
            options["keys"] = MasterKeys({"memory": os.urandom(32)})
        super().__init__(engine_in_memory(), **options)
        self.create_tables()
