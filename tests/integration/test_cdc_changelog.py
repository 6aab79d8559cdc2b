"""Rows changed in a real PostgreSQL, captured by the real Debezium, decoded from the real topic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    ARRAY,
    JSON,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    Table,
    Text,
    Uuid,
)

from cdc import ChangeDecoder, ChangeEvent, Op, PostgresSource, apply
from eventstore.kafka.admin import OffsetReader
from eventstore.settings import Settings
from eventstore.topics import TopicRecord

CUSTOMERS = Table(
    "customers",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("credit", Numeric(12, 2)),
    Column("born", Date),
    Column("seen", DateTime(timezone=True)),
    Column("local", DateTime),
    Column("ratio", Double),
    Column("active", Boolean, nullable=False, server_default="true"),
    Column("doc", JSON),
    Column("uid", Uuid),
    Column("notes", Text),
    Column("raw", LargeBinary),
    Column("tags", ARRAY(Text)),
    Column("counts", ARRAY(Integer)),
    schema="public",
)

ANN: dict[str, Any] = {
    "id": 1,
    "name": "Ann",
    "credit": Decimal("12.50"),
    "born": date(1980, 2, 29),
    "seen": datetime(2024, 1, 2, 1, 4, 5, 678901, tzinfo=UTC),
    "local": datetime(2024, 1, 2, 3, 4, 5, 600000),
    "ratio": 0.1,
    "active": False,
    "doc": {"a": [1, None]},
    "uid": UUID("a1b2c3d4-0000-4000-8000-000000000001"),
    "raw": b"\x00\xff",
    "tags": ["a", "b"],
    "counts": [1, 2],
}
BIG = random.Random(1)
# Random, so that compression does not bring them back into the row.
STORED_APART: dict[str, Any] = {
    "notes": "".join(BIG.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000)),
    "raw": BIG.randbytes(20_000),
    "tags": ["".join(BIG.choices("abcdefghijklmnopqrstuvwxyz", k=20_000))],
    "counts": [BIG.randrange(1 << 30) for _ in range(5_000)],
}


class Story:
    """What happened to the table, in order, and the records it left."""

    def __init__(self, source: PostgresSource, records: list[TopicRecord], rows: list[dict[str, Any]]) -> None:
        self.source = source
        self.records = records
        self.rows = rows
        decoder = ChangeDecoder(CUSTOMERS)
        self.changes = [
            decoder.decode(record.key, record.value, offset=record.offset, place=record.place) for record in records
        ]

    def of(self, key: int) -> list[ChangeEvent]:
        return [change for change in self.changes if change.key == {"id": key}]


@pytest.fixture(scope="module")
def story(captured: Callable[[], Any], connect: Any, records_of: Callable[..., list[TopicRecord]]) -> Story:
    shop = captured()
    table = CUSTOMERS
    table.create(shop.engine)
    with shop.engine.begin() as connection:
        connection.execute(table.insert(), [ANN, ANN | {"id": 9, "name": "Snapshot"}])
    source = shop.prepared(shop.source(tables=("public.customers",)))
    apply(connect, source, source=shop.engine)
    for statement in (
        table.insert().values(id=2, name="Bob"),
        table.update().where(table.c.id == 1).values(**STORED_APART),
        table.update().where(table.c.id == 1).values(name="Ann B."),
        table.update().where(table.c.id == 2).values(id=22),
        table.delete().where(table.c.id == 9),
    ):
        with shop.engine.begin() as connection:
            connection.execute(statement)
    # snapshot 2; insert, two updates; key change: delete, tombstone, insert; delete, tombstone
    records = records_of(source.topic("public.customers"), count=10)
    with shop.engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(table.select().order_by("id")).mappings()]
    return Story(source, records, rows)


def test_snapshot_rows_arrive_as_the_types_of_their_columns(story: Story) -> None:
    snapshot = story.of(1)[0]

    assert snapshot.op is Op.SNAPSHOT
    assert snapshot.after == ANN | {"notes": None}


def test_an_insert_arrives_with_its_nulls_and_defaults(story: Story) -> None:
    insert = story.of(2)[0]

    assert insert.op is Op.INSERT
    assert insert.after is not None
    assert (insert.after["name"], insert.after["active"], insert.after["credit"]) == ("Bob", True, None)


def test_an_update_that_leaves_large_values_alone_names_them(story: Story) -> None:
    _, filled, renamed = story.of(1)

    assert filled.op is renamed.op is Op.UPDATE
    assert filled.unavailable == frozenset()
    assert renamed.unavailable == set(STORED_APART)
    assert renamed.completed(filled.after) == ANN | STORED_APART | {"name": "Ann B."}


def test_a_delete_is_followed_by_a_tombstone(story: Story) -> None:
    snapshot, delete, tombstone = story.of(9)

    assert [snapshot.op, delete.op, tombstone.op] == [Op.SNAPSHOT, Op.DELETE, Op.TOMBSTONE]
    assert delete.removes
    assert delete.before == {"id": 9}


def test_a_changed_primary_key_is_a_delete_and_an_insert(story: Story) -> None:
    assert [change.op for change in story.of(2)] == [Op.INSERT, Op.DELETE, Op.TOMBSTONE]
    assert [change.op for change in story.of(22)] == [Op.INSERT]


def test_the_newest_positions_give_the_table_whatever_the_order_of_arrival(story: Story) -> None:
    arrived = [change for change in story.changes if change.position is not None]

    for seed in range(5):
        random.Random(seed).shuffle(arrived)
        assert newest(arrived) == {row["id"]: row["name"] for row in story.rows}


def newest(changes: Iterable[ChangeEvent]) -> dict[int, str]:
    latest: dict[int, ChangeEvent] = {}
    for change in changes:
        key = change.key["id"]
        if key not in latest or change.position > latest[key].position:  # type: ignore[operator]
            latest[key] = change
    return {key: change.after["name"] for key, change in latest.items() if change.after is not None}


def test_the_changelog_topic_has_the_declared_partitions(story: Story, settings: Settings) -> None:
    topic = story.source.topic("public.customers")

    with OffsetReader(settings) as reader:
        assert reader.partitions([topic]) == {topic: story.source.partitions}


def test_records_carry_no_debezium_context_headers(story: Story) -> None:
    names = {name for record in story.records for name, _ in record.headers}

    assert names <= {"__debezium.newkey", "__debezium.oldkey"}
