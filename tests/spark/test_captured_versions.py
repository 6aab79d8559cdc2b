"""Versions out of what triggers capture: the last one of each row is the row, however a statement came to it."""

from __future__ import annotations

import sqlalchemy as sa

from cdc import capture_table
from projections import Table
from projections.logs.offsets import OffsetRange
from projections.spark.kinds import Reduction
from projections.spark.reading.store_source import StoreLog
from tests.reference import newest_per_key, valid_at, versions_per_key
from tests.rows import each_row

TOPIC = "shelf"
# A BIGINT key is no alias of SQLite's row id: rows keep their order when their keys move.
SHELF = sa.Table(
    "shelf", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("score", sa.Integer)
)
versions, newest = Table.versions_of(SHELF, topic=TOPIC), Table.from_changelog(SHELF, topic=TOPIC)
FAR = 1 << 60

FILL = "INSERT INTO shelf VALUES (3, 30), (2, 20), (1, 10)"
RAISE = (
    "CREATE TRIGGER raise AFTER UPDATE ON shelf WHEN NEW.score < 100"
    " BEGIN UPDATE shelf SET score = 100 WHERE id = NEW.id; END"
)
REFILL = "CREATE TRIGGER refill AFTER DELETE ON shelf BEGIN INSERT INTO shelf VALUES (OLD.id, 7); END"
EMPTY = "CREATE TRIGGER empty AFTER INSERT ON shelf BEGIN DELETE FROM shelf WHERE id = NEW.id; END"
# Name: what is written before the capture, and in one transaction after it. SQLite fires the younger trigger first.
WRITES = {
    "an upsert that hits a key twice": (
        [FILL], ["INSERT INTO shelf VALUES (1, 50), (1, 60) ON CONFLICT (id) DO UPDATE SET score = excluded.score"],
    ),
    "keys that move up by one": ([], [FILL, "UPDATE shelf SET id = id + 1"]),
    "an older trigger that changes the row again": ([FILL, RAISE], ["UPDATE shelf SET score = score + 1"]),
    "a younger one": ([FILL], [RAISE, "UPDATE shelf SET score = score + 1"]),
    "an older trigger that puts the row back": ([FILL, REFILL], ["DELETE FROM shelf WHERE id = 2"]),
    "a younger one of the kind": ([FILL], [REFILL, "DELETE FROM shelf WHERE id = 2"]),
    "an older trigger that takes the row away": ([EMPTY], [FILL]),
    "a younger one that does": ([], [EMPTY, FILL]),
    "statements of one transaction": ([], [FILL, "UPDATE shelf SET score = 1", "DELETE FROM shelf WHERE id = 3"]),
}  # fmt: skip


def perform(engine, before, after):
    """Write before and after the capture; returns the table's rows."""
    run(engine, before)
    capture_table(engine, SHELF, topic=TOPIC)
    run(engine, after)
    with engine.connect() as connection:
        return {row.id: row.score for row in connection.execute(sa.select(SHELF))}


def run(engine, statements):
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def fetched(engine):
    with StoreLog(engine.url.database).open() as log:
        return log.fetch(OffsetRange({TOPIC: {0: 0}}, log.end_offsets([TOPIC])))


def last_rows(rows):
    """The rows by key, out of versions or of the newest of each key."""
    last = {row.id: row for row in sorted(rows, key=lambda row: row["_pos"])}
    return {key: row.score for key, row in last.items() if not row["_deleted"]}


@each_row("writes", WRITES.values(), ids=WRITES)
def test_the_last_version_of_every_row_is_the_row_in_spark_and_in_plain_python(small, tmp_path_factory, writes):
    engine = sa.create_engine(f"sqlite:///{tmp_path_factory.mktemp('shelf') / 'shelf.db'}")
    SHELF.metadata.create_all(engine)
    rows, records = perform(engine, *writes), fetched(engine)
    engine.dispose()
    raw = small.createDataFrame(records).coalesce(1)
    assert last_rows(Reduction({}).reduce(raw, newest).collect()) == rows
    assert last_rows(Reduction({}).reduce(raw, versions).collect()) == rows
    changes = [(record["offset"], record["key"].decode(), record["value"]) for record in records.to_pylist()]
    found = [valid_at(known, FAR) for known in versions_per_key(changes).values()]
    assert {row["id"]: row["score"] for row in found if row} == rows
    assert {row["id"]: row["score"] for row in newest_per_key(changes).values()} == rows
