"""Options that name stores and topics to look at, and which of their events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import eventstore
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.events.store import MaybeStore, existing_store
from factfold.cli.keys import TopicKeys
from factfold.cli.options import option, parse_duration

if TYPE_CHECKING:
    from eventstore import SqlEventStore
    from eventstore.inspection.entries import Log

MaybeTopic = Annotated[str | None, option("--topic", "Read this topic, and no store.")]


@dataclass(frozen=True)
class Chosen:
    """Which events are meant, as options say it."""

    streams: Annotated[list[str] | None, option("--stream", "Only this stream. May be repeated.")] = None
    categories: Annotated[list[str] | None, option("--category", "Only this category. May be repeated.")] = None
    types: Annotated[list[str] | None, option("--type", "Only this event type. May be repeated.")] = None
    since: Annotated[
        str | None, option("--since", "Not before this: a time with its zone, or how long ago: 15m, 2h.")
    ] = None
    until: Annotated[str | None, option("--until", "Not after this: a time with its zone, or how long ago.")] = None
    correlation: Annotated[str | None, option("--correlation", "Only this correlation id.")] = None

    def selection(self, **versions: int | None) -> on_demand.Selection:
        """The selection of these events; the errors of `Selection`, DeclarationError for what is no time."""
        return on_demand.Selection(
            streams=tuple(self.streams or ()), categories=tuple(self.categories or ()), types=tuple(self.types or ()),
            since=None if self.since is None else parse_moment(self.since),
            until=None if self.until is None else parse_moment(self.until),
            correlation_id=self.correlation, **versions,
        )  # fmt: skip


@dataclass(frozen=True)
class LogPlace:
    """The one store or topic to look at."""

    store: MaybeStore
    topic: MaybeTopic = None

    @contextmanager
    def opened(self, keys: TopicKeys) -> Iterator[Log]:
        """Open it; DeclarationError without either."""
        databases = [self.store.database] if self.store.database is not None and self.topic is None else []
        topics = [] if self.topic is None else [self.topic]
        with opened_logs(databases, self.store.schema, topics, keys) as (_, logs):
            yield logs[0]


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
def opened_logs(
    databases: Sequence[str], schema: str | None, topics: Sequence[str], keys: TopicKeys
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


def _store_log(opened: ExitStack, database: str, schema: str | None, keys: TopicKeys) -> tuple[SqlEventStore, Log]:
    store = opened.enter_context(existing_store(database, schema, keys=keys.of_store))
    return store, on_demand.StoreLog(store)


def _topic(opened: ExitStack, topic: str, keys: TopicKeys) -> Log:
    held = opened.enter_context(keys.of_topics())
    return opened.enter_context(on_demand.TopicLog(topic, eventstore.Settings(), keys=held))
