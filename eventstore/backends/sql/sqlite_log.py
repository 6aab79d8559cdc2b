"""An event store on SQLite read as a log: topics of events, and of captured row changes.

A topic has one partition. An event's offset is its position, a change's is that of its own table; other topics' records
lie between, so offsets have gaps. No fence is needed: SQLite has one writer at a time, so a position that is seen has
no smaller one still to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from eventstore.backends.sql.changes import CAPTURES, CHANGES
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.engines import engine_for
from eventstore.backends.sql.models import Tables
from eventstore.closing import Closing
from eventstore.errors import TopicMissing
from eventstore.schema_registry import RegisteredSchema

PARTITION: Final = 0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE: Final = 20_000  # rows at a time: some 4 MB of events
_ORDER_XID: Final = 0  # of every event on SQLite; named, because the index of a category has it before the position

Record = tuple[int, str, bytes | None, str | None, str | None, str | None]
"""Offset, key, value, and of an event: time as its record's header has it, id as 32 hexadecimal digits, source."""


class SqliteLog(Closing):
    """The topics of one SQLite file; a TopicMissing names those there are."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._engine = engine_for(sa.URL.create("sqlite", database=path))
        self._tables = Tables(None)
        self._database = Database(self._engine, self._tables)
        self._sources: dict[str, tuple[sa.Table, sa.ColumnElement[bool]]] = {}

    def beginning_offsets(self, topics: Sequence[str]) -> dict[str, dict[int, int]]:
        """Return 0 for each topic: what is removed leaves a record without a value."""
        self._look_up(topics)
        return {topic: {PARTITION: 0} for topic in topics}

    def end_offsets(self, topics: Sequence[str]) -> dict[str, dict[int, int]]:
        """Return the offset after each topic's last record, all as of one moment, by one query."""
        self._look_up(topics)
        parts = [sa.select(sa.literal(topic), self._last(topic)) for topic in topics]
        with self._database.statement() as connection:
            rows = connection.execute(parts[0] if len(parts) == 1 else sa.union_all(*parts))
            return {topic: {PARTITION: 0 if last is None else last + 1} for topic, last in rows}

    def offsets_at(self, moment: datetime, topics: Sequence[str]) -> dict[str, dict[int, int]]:
        """Return the offset of each topic's first record that is not older than a moment, or its end.

        An event's time is that of its header, a change's that of its source.
        """
        ends = self.end_offsets(topics)
        with self._database.statement() as connection:
            firsts = {topic: connection.scalar(self._since(topic, moment)) for topic in topics}
        return {topic: ends[topic] if first is None else {PARTITION: first} for topic, first in firsts.items()}

    def _since(self, topic: str, moment: datetime) -> sa.Select[Any]:
        table, ours = self._sources[topic]
        if table is CHANGES:
            micros = (moment - _EPOCH) // timedelta(microseconds=1)
            recent = sa.func.json_extract(table.c.payload, "$.source.ts_ms") * 1000 >= micros
        else:
            recent = table.c.time >= moment.astimezone(UTC)
        return sa.select(sa.func.min(table.c.position)).where(ours, recent)

    def records(self, topic: str, first: int, last: int) -> Iterator[Sequence[Record]]:
        """Yield a topic's records with offsets from `first` to before `last`, in their order, a page at a time."""
        query = self._between(topic, first, last)
        with self._database.statement() as connection:
            for page in connection.execute(query, execution_options={"yield_per": _PAGE}).partitions():
                yield [tuple(row) for row in page]

    def first(self, topic: str, first: int, last: int) -> Record | None:
        """Return the first of the records that `records` yields, None without any."""
        with self._database.statement() as connection:
            row = connection.execute(self._between(topic, first, last).limit(1)).first()
        return None if row is None else tuple(row)

    def _between(self, topic: str, first: int, last: int) -> sa.Select[Any]:
        self._look_up([topic])
        table, ours = self._sources[topic]
        payload = sa.cast(table.c.payload, sa.LargeBinary) if table is CHANGES else table.c.payload
        query = sa.select(table.c.position, table.c.message_key, payload, *_headers(table))
        return query.where(ours, table.c.position >= first, table.c.position < last).order_by(table.c.position)

    def schemas(self) -> Mapping[int, RegisteredSchema]:
        """Return every registered schema, by its id."""
        rows = self._rows_of(self._tables.schemas, sa.select(self._tables.schemas.c.payload))
        schemas = [RegisteredSchema.from_json(payload) for (payload,) in rows]
        return {schema.id: schema for schema in schemas}

    def close(self) -> None:
        """Let the file go."""
        self._engine.dispose()

    def _last(self, topic: str) -> Any:
        table, ours = self._sources[topic]
        return sa.select(table.c.position).where(ours).order_by(table.c.position.desc()).limit(1).scalar_subquery()

    def _look_up(self, topics: Iterable[str]) -> None:
        """Look up the tables of topics. The table of a topic never changes: ask once."""
        unknown = [topic for topic in topics if topic not in self._sources]
        if not unknown:
            return
        known = {**self._event_topics(), **self._change_topics()}
        for topic in unknown:
            if topic not in known:
                raise TopicMissing(
                    f"the store has no events and no captured table under topic {topic!r}",
                    remedy="register the aggregate in the store, or capture the table, before reading it. "
                    f"There are: {', '.join(sorted(known)) or 'none yet'}",
                    place=self._path,
                )
            self._sources[topic] = known[topic]

    def _event_topics(self) -> dict[str, tuple[sa.Table, sa.ColumnElement[bool]]]:
        events, categories = self._tables.events, self._tables.categories
        of_topic: dict[str, list[str]] = {}
        for category, topic in self._rows_of(categories, sa.select(categories.c.category, categories.c.topic)):
            of_topic.setdefault(topic, []).append(category)
        return {
            topic: (events, events.c.category.in_(names) & (events.c.order_xid == _ORDER_XID))
            for topic, names in of_topic.items()
        }

    def _change_topics(self) -> dict[str, tuple[sa.Table, sa.ColumnElement[bool]]]:
        topics = self._rows_of(CAPTURES, sa.select(CAPTURES.c.topic))
        return {topic: (CHANGES, CHANGES.c.topic == topic) for (topic,) in topics}

    def _rows_of(self, table: sa.Table, query: sa.Select[Any]) -> Sequence[Any]:
        """Return a query's rows, none where the table is missing: a file may hold events, changes, or both."""
        with self._database.statement() as connection:
            return connection.execute(query).all() if sa.inspect(connection).has_table(table.name) else []


def _headers(table: sa.Table) -> tuple[sa.ColumnElement[Any], ...]:
    if table is CHANGES:
        return (sa.null(), sa.null(), sa.null())
    return (table.c.ce_time, sa.type_coerce(table.c.id, sa.Text), table.c.ce_source)
