"""Where the console looks: addresses, clients that stay open, and a look at several sources side by side.

`import_for_readings` comes before the threads. Two threads that import one package at once, such as
`eventstore.backends.sql`, may see modules half made.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from eventstore import Settings
from eventstore.backends.sql.engines import opened_engine
from eventstore.closing import Closing
from eventstore.errors import FactfoldError
from factfold import on_demand
from factfold.cli.cdc.connectors import maybe_database
from factfold.cli.events.store import existing_store
from factfold.cli.views.projections import open_log, opened_views
from factfold.console.jobs import Jobs
from factfold.console.parts import NOT_YET, Part, Places, Reader, Trend, Trends
from factfold.discovery import Discovery

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient
    from eventstore import SqlEventStore
    from eventstore.kafka.admin import OffsetReader
    from projections.spark.reading.kafka_source import OpenKafkaLog
    from projections.spark.reading.store_source import OpenStoreLog
    from projections.stores.sql import TableStore


_READ_BY: Final = (
    "cdc.connect.client",
    "eventstore.backends.sql.sqlite",
    "eventstore.kafka.groups",
    "eventstore.relay",
    "projections.branching.router",
    "projections.lifecycle.metrics",
    "projections.spark.reading.kafka_source",
    "projections.spark.reading.store_source",
    "projections.stores.asked_rows",
    "projections.stores.behind_rows",
    "projections.stores.aside",
    "projections.stores.opening",
    "projections.stores.sqlite",
)


def import_for_readings() -> None:
    """Import what readings need. What an extra lacks is a problem of the part that needs it, and not of the start."""
    for module in _READ_BY:
        with suppress(ImportError):
            import_module(module)


T = TypeVar("T")
C = TypeVar("C", bound=Closing)

_READERS: Final = 500  # parts that are remembered: those of single rows and streams come and go
_THREADS: Final = 8
_CONNECT_SECONDS: Final = 2.0  # a worker that answers at all answers a status within milliseconds


class Clients(Closing):
    """Opens each client when it is first needed, and holds it. Raises FactfoldError without an address."""

    def __init__(self, places: Places, definitions: Discovery) -> None:
        self.places, self.definitions = places, definitions
        self._opened = ExitStack()
        self._held: dict[str, Any] = {}
        self._made: dict[Hashable, tuple[object, Any]] = {}
        self._locks: dict[str, Lock] = {}
        self.trends = Trends()

    @property
    def store(self) -> SqlEventStore:
        """The event store, without keys: personal values stay sealed."""
        url = self._address("store_url", "the event store")
        return self._hold("store", lambda: self._opened.enter_context(existing_store(url, self.places.store_schema)))

    @property
    def views(self) -> TableStore:
        """The database of the views."""
        url = self._address("views_url", "the views")
        return self._hold("views", lambda: _opened_views(self._opened, url))

    @property
    def connect(self) -> ConnectClient:
        """The Connect worker, asked once, with little patience."""
        from cdc import ConnectClient  # needs the extra cdc, which a console without connectors does without

        url = self._address("connect_url", "Kafka Connect")
        opening = partial(ConnectClient, url, timeout=_CONNECT_SECONDS, patience=_CONNECT_SECONDS)
        return self._hold("connect", lambda: self._opened.enter_context(opening()))

    @property
    def source(self) -> Engine | None:
        """The database of the connectors, None if it is not configured: then slots are not looked at."""
        url = self.places.source_url
        return self._hold("source", lambda: self._opened.enter_context(maybe_database(url)))

    @property
    def database(self) -> Engine | None:
        """The database of the handlers, None if it is the event store's."""
        url = self.places.inbox_url
        return None if url is None else self._hold("database", lambda: self._opened.enter_context(opened_engine(url)))

    @property
    def settings(self) -> Settings:
        """How to reach Kafka."""
        if not self.places.kafka:
            raise _not_configured("Kafka", "bootstrap_servers of [kafka]", "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS")
        return self._hold("settings", Settings)

    @property
    def offsets(self) -> OffsetReader:
        """What asks the brokers for offsets over one connection."""
        from eventstore.kafka.admin import OffsetReader  # needs the extra kafka, like the topics that it looks at

        settings = self.settings
        return self._hold("offsets", lambda: self._opened.enter_context(OffsetReader(settings, deadline=3.0)))

    @property
    def log(self) -> OpenKafkaLog | OpenStoreLog:
        """The log that the views are made from: their own SQLite file, or Kafka."""
        url = self._address("views_url", "the views")
        settings = None if on_demand.sqlite_path(url) else self.settings
        return self._hold("log", lambda: self._closing(open_log(url, settings)))

    def unless_same(self, name: Hashable, stamp: object, make: Callable[[], T]) -> T:
        """Return what was made last under a name and a stamp, such as a topic's end; make it if the stamp differs."""
        stamped = self._made.get(name)
        if stamped is None or stamped[0] != stamp:
            stamped = self._made[name] = (stamp, make())
        value: T = stamped[1]
        return value

    def close(self) -> None:
        """Let every client go."""
        self._held.clear()
        self._opened.close()

    def _address(self, setting: str, what: str) -> str:
        value: str | None = getattr(self.places, setting)
        if value is None:
            raise _not_configured(what, setting, f"FACTFOLD_{setting}".upper())
        return value

    def _closing(self, opened: C) -> C:
        self._opened.callback(opened.close)
        return opened

    def _hold(self, name: str, opening: Callable[[], T]) -> T:
        with self._locks.setdefault(name, Lock()):  # one each: a database that is slow holds up no other client
            if name not in self._held:
                self._held[name] = opening()
            client: T = self._held[name]
            return client


def _opened_views(opened: ExitStack, url: str) -> TableStore:
    store = opened.enter_context(opened_views(url))
    store.prepare()
    return store


def _not_configured(what: str, setting: str, variable: str) -> FactfoldError:
    return FactfoldError(
        f"the address of {what} is not configured",
        remedy=f"set {setting} in factfold.toml, or {variable}",
        code="not-configured",
    )


@dataclass(frozen=True)
class Reading(Generic[T]):
    """How a part is read: a function of the clients and of arguments, which name the part.

    A reading that takes long has `rest` seconds at least before the next one.
    """

    read: Callable[..., T]
    arguments: tuple[Hashable, ...] = ()
    rest: float = 0.0

    def of(self, *arguments: Hashable) -> Reading[T]:
        """Return the reading for arguments."""
        return Reading(self.read, arguments, self.rest)


class Sources(Closing):
    """Reads parts side by side, each at most once in `every` seconds; a page waits `patience` seconds for all."""

    def __init__(
        self,
        places: Places,
        definitions: Discovery | None = None,
        *,
        every: float = 2.0,
        patience: float = 0.2,
    ) -> None:
        import_for_readings()
        self.clients = Clients(places, definitions or Discovery())
        self.jobs = Jobs(places)
        self.patience = patience
        self._every = every
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="console")
        self._readers: OrderedDict[Reading[Any], Reader[Any]] = OrderedDict()
        self._lock = Lock()

    @property
    def definitions(self) -> Discovery:
        """What the service declares."""
        return self.clients.definitions

    def look(self) -> Look:
        """Begin to look: the time that a page may wait runs from now on."""
        return Look(self, time.monotonic() + self.patience)

    def reader(self, reading: Reading[T]) -> Reader[T]:
        """Return what reads a part; that of the part which was asked for least recently is forgotten at some size."""
        with self._lock:
            reader = self._readers.get(reading)
            if reader is None:
                work = partial(reading.read, self.clients, *reading.arguments)
                every = max(self._every, reading.rest) if self._every else 0.0
                reader = self._readers[reading] = Reader(work, self._pool, every=every)
            self._readers.move_to_end(reading)
            while len(self._readers) > _READERS:
                self._readers.popitem(last=False)
            return reader

    def forget(self) -> None:
        """Read everything again at the next look: an action has changed it."""
        with self._lock:
            self._readers.clear()

    def close(self) -> None:
        """Let readings end and clients go."""
        self.jobs.close()
        self._pool.shutdown(cancel_futures=True)
        self.clients.close()


@dataclass(frozen=True)
class Look:
    """One page's look at the sources; waits for all parts together until `deadline`.

    `pending` has the readings that had not answered by then, and had never answered before.
    """

    sources: Sources
    deadline: float
    pending: list[Reading[Any]] = field(default_factory=list)
    definitions: Discovery = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "definitions", self.sources.definitions)

    @property
    def places(self) -> Places:
        """The addresses."""
        return self.sources.clients.places

    def start(self, *readings: Reading[Any]) -> None:
        """Begin to read parts side by side."""
        for reading in readings:
            self.sources.reader(reading).start()

    def part(self, reading: Reading[T]) -> Part[T]:
        """Return a part as it was read last, waiting for the reading that runs."""
        part = self.sources.reader(reading).part(deadline=self.deadline)
        if part.problem is NOT_YET:
            self.pending.append(reading)
        return part

    def trend(self, name: str) -> Trend:
        """Return how a figure has moved, such as `group shop`."""
        return self.sources.clients.trends.of(name)
