"""Orders and customers as a connector leaves them in Kafka, as many as are asked for, and the view that joins them."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, field

import sqlalchemy as sa

from eventstore import Settings
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import changelog_topic
from projections import ProjectionGroup, Table, sql_view
from projections.declaring.tables import ChangelogTable

PARTITIONS = 4
_METADATA = sa.MetaData()
_ORDERS = sa.Table(
    "orders",
    _METADATA,
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("customer_id", sa.BigInteger),
    sa.Column("amount", sa.BigInteger),
)
_CUSTOMERS = sa.Table(
    "customers", _METADATA, sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("city", sa.Text)
)
JOINED = "SELECT o.id, o.amount, c.city FROM orders o JOIN customers c ON o.customer_id = c.id"


@dataclass
class ShopLog:
    """Two topics of their own; records are of some 170 bytes. ``group`` is the foreign-key join of both."""

    settings: Settings
    customers: int
    prefix: str = field(default_factory=lambda: f"bench-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.orders_topic, self.customers_topic = (_topic(self.prefix, name) for name in ("orders", "customers"))
        self._producer = RecordProducer(self.settings)
        self._chance = random.Random(7)  # noqa: S311 - which customer, not a secret
        self._position = self._orders = 0
        topics = (self.orders_topic, self.customers_topic)
        ensure_topics(self.settings, [changelog_topic(topic, partitions=PARTITIONS) for topic in topics])
        cities = ((number, {"city": _city(number)}) for number in range(self.customers))
        self._producer.send(self._change(self.customers_topic, number, values) for number, values in cities)

    @property
    def group(self) -> ProjectionGroup:
        """A view over tables of this log's topics. Its own name lets several logs share one database."""
        return join_of(self.prefix)

    def group_of(self, name: str, text: str) -> ProjectionGroup:
        """A group of one query over tables of this log's topics."""
        return _group(self.prefix, name, text)

    @property
    def tables(self) -> dict[str, ChangelogTable]:
        """The tables of its topics."""
        return _tables(self.prefix)

    @property
    def records(self) -> int:
        """How many there are in both topics."""
        return self._position

    def insert(self, count: int) -> None:
        """Write new orders."""
        self._producer.send(self._order(self._orders + number, "c") for number in range(count))
        self._orders += count

    def update(self, count: int) -> None:
        """Write changes of orders that are there, each of another one."""
        self._producer.send(self._order(number, "u") for number in self._chance.sample(range(self._orders), count))

    def _order(self, number: int, op: str) -> OutgoingRecord:
        values = {"customer_id": self._chance.randrange(self.customers), "amount": self._chance.randrange(100)}
        return self._change(self.orders_topic, number, values, op)

    def _change(self, topic: str, identity: int, values: dict[str, object], op: str = "c") -> OutgoingRecord:
        self._position += 1
        source = {"connector": "postgresql", "lsn": self._position, "snapshot": "false"}
        change = {"op": op, "before": None, "after": {"id": identity, **values}, "source": source}
        return OutgoingRecord(topic=topic, key=_json({"id": identity}), value=_json(change))


def join_of(prefix: str) -> ProjectionGroup:
    """The foreign-key join over the topics of a log."""
    return _group(prefix, "orders", JOINED)


def _group(prefix: str, name: str, text: str) -> ProjectionGroup:
    own = f"{name}_of_{prefix.replace('-', '_')}"
    return ProjectionGroup(own, [sql_view(own, text, tables=_tables(prefix))])


def _tables(prefix: str) -> dict[str, ChangelogTable]:
    described = {"orders": _ORDERS, "customers": _CUSTOMERS}
    return {name: Table.from_changelog(one, topic=_topic(prefix, name)) for name, one in described.items()}


def _topic(prefix: str, table: str) -> str:
    return f"{prefix}.public.{table}"


def _city(customer: int) -> str:
    return f"c{customer % 97}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
