"""Options that name stores and topics to look at, and which of their events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

import eventstore
from eventstore.errors import DeclarationError, KeysMissing
from factfold import on_demand
from factfold.cli.events.store import existing_store
from factfold.cli.keys import load_key_store, named_keys, open_keys
from factfold.cli.views.archive import parse_duration

if TYPE_CHECKING:
    from eventstore import MasterKeys, SqlEventStore
    from eventstore.erasure import KeyStore
    from eventstore.inspection.entries import Log

MaybeDatabase = Annotated[
    str | None,
    typer.Option("--store-url", envvar="FACTFOLD_STORE_URL", help="SQLAlchemy URL of the store's database."),
]
Databases = Annotated[
    list[str] | None,
    typer.Option("--store-url", envvar="FACTFOLD_STORE_URL", help="A store's SQLAlchemy URL. May be repeated."),
]
MaybeTopic = Annotated[str | None, typer.Option("--topic", help="Read this topic, and no store.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Read this topic too. May be repeated.")]
Streams = Annotated[list[str] | None, typer.Option("--stream", help="Only this stream. May be repeated.")]
Categories = Annotated[list[str] | None, typer.Option("--category", help="Only this category. May be repeated.")]
Types = Annotated[list[str] | None, typer.Option("--type", help="Only this event type. May be repeated.")]
Since = Annotated[
    str | None, typer.Option("--since", help="Not before this: a time with its zone, or how long ago: 15m, 2h.")
]
Until = Annotated[str | None, typer.Option("--until", help="Not after this: a time with its zone, or how long ago.")]
Correlation = Annotated[str | None, typer.Option("--correlation", help="Only this correlation id.")]
ShowPersonal = Annotated[
    bool, typer.Option("--show-personal", help="Open personal values with the keys. Otherwise they are masked.")
]


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """What the options say of keys. Without `show` none is used, whatever the environment holds."""

    show: bool
    master_keys: str | None
    key_store: str | None
    keys_url: str | None = None

    def of_store(self) -> KeyStore | MasterKeys | None:
        """The keys to open a store with; KeysMissing."""
        if not self.show:
            return None
        if (keys := named_keys(self.key_store, self.master_keys)) is None:
            raise self._missing("--master-keys (FACTFOLD_MASTER_KEYS) or --key-store")
        return keys

    @contextmanager
    def of_topics(self) -> Iterator[KeyStore | None]:
        """The keys to open records of topics with; KeysMissing."""
        if not self.show:
            yield None
        elif self.key_store is not None:
            yield load_key_store(self.key_store)
        else:
            with open_keys(self.master_keys, self.keys_url) as keys:
                if keys is None:
                    raise self._missing("--master-keys and --keys-url, the store that has the keys, or --key-store")
                yield keys

    def _missing(self, options: str) -> KeysMissing:
        return KeysMissing("--show-personal needs keys, and there are none", remedy=f"name them: {options}")


def selected(
    *,
    streams: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    correlation: str | None = None,
    from_version: int | None = None,
    to_version: int | None = None,
) -> on_demand.Selection:
    """The selection that options name; the errors of `Selection`, DeclarationError for what is no time."""
    return on_demand.Selection(
        streams=tuple(streams or ()),
        categories=tuple(categories or ()),
        types=tuple(types or ()),
        since=None if since is None else parse_moment(since),
        until=None if until is None else parse_moment(until),
        correlation_id=correlation,
        from_version=from_version,
        to_version=to_version,
    )


def parse_moment(text: str) -> datetime:
    """Read `2026-11-26T12:00:00Z`, or `15m` for as long ago; DeclarationError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - parse_duration(text)
        except (DeclarationError, OverflowError):
            raise DeclarationError(
                f"{text!r} is no time", remedy="write 2026-11-26T12:00:00Z, or how long ago: 15m, 2h, 3d"
            ) from None
    if moment.tzinfo is None:
        raise DeclarationError(
            f"{text!r} has no time zone", remedy=f"write it as {moment.isoformat()}Z, or with its zone"
        )
    return moment


@contextmanager
def opened_log(database: str | None, schema: str | None, topic: str | None, keys: KeyOptions) -> Iterator[Log]:
    """The one store or topic that options name; DeclarationError without either."""
    with ExitStack() as opened:
        if topic is not None:
            yield _topic(opened, topic, keys)
        elif database is not None:
            yield _store_log(opened, database, schema, keys)[1]
        else:
            raise no_log()


@contextmanager
def opened_logs(
    databases: Sequence[str], schema: str | None, topics: Sequence[str], keys: KeyOptions
) -> Iterator[tuple[list[SqlEventStore], list[Log]]]:
    """Every store and topic that options name, and the stores by themselves; DeclarationError without any."""
    if not databases and not topics:
        raise no_log()
    with ExitStack() as opened:
        pairs = [_store_log(opened, database, schema, keys) for database in databases]
        yield [store for store, _ in pairs], [*(log for _, log in pairs), *(_topic(opened, t, keys) for t in topics)]


def no_log() -> DeclarationError:
    """Build the error for a command that was given nothing to read."""
    return DeclarationError(
        "neither a store nor a topic is named", remedy="say --store-url URL (FACTFOLD_STORE_URL), or --topic NAME"
    )


def _store_log(opened: ExitStack, database: str, schema: str | None, keys: KeyOptions) -> tuple[SqlEventStore, Log]:
    store = opened.enter_context(existing_store(database, schema, keys=keys.of_store()))
    return store, on_demand.StoreLog(store)


def _topic(opened: ExitStack, topic: str, keys: KeyOptions) -> Log:
    held = opened.enter_context(keys.of_topics())
    return opened.enter_context(on_demand.TopicLog(topic, eventstore.Settings(), keys=held))
