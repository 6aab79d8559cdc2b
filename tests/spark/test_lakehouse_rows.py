"""Rows of a batch in Delta Lake: worked out once, few or many, and looked up by what tells them apart."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import Table
from projections.declaring.tables import set_at
from projections.errors import UndecodableRecord
from projections.spark.exchange import DRIVER_ROWS
from projections.spark.lakehouse.completing import Staged, state_columns
from projections.spark.lakehouse.materialized import materialized
from tests.integration.tickets import DECLARED, Ticket

MODEL = sa.Table(
    "sides",
    sa.MetaData(),
    sa.Column("one", sa.BigInteger, primary_key=True),
    sa.Column("other", sa.BigInteger, primary_key=True, nullable=True),
    sa.Column("amount", sa.BigInteger),
)
COUNTED = sa.Table(
    "counted", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("amount", sa.BigInteger)
)
NOTED = sa.Table("noted", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("note", sa.Text))
counted = Table.from_changelog(COUNTED, topic="counted-rows")
tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
noted = Table.from_changelog(NOTED, topic="noted-rows")
sides = Table.from_view_topic(MODEL, topic="sides-rows")


@pytest.mark.parametrize("rows", [10, DRIVER_ROWS + 5])
def test_rows_are_worked_out_once(spark, rows):
    worked_out = spark.sparkContext.accumulator(0)

    def noted(batches):
        for batch in batches:
            worked_out.add(batch.num_rows)
            yield batch

    found = materialized(spark.range(rows, numPartitions=3).mapInArrow(noted, "id bigint"))
    assert (found.count, found.rows.count(), found.few is not None) == (rows, rows, rows <= DRIVER_ROWS)
    assert worked_out.value == rows


def test_a_row_whose_key_has_a_null_is_held_against_the_stored_one(small):
    def side(amount, offset):
        key = {"one": 1, "other": None, "_record_key": '{"one":1,"other":null}'}
        return row(small, sides, **key, amount=amount, _pos=offset, _offset=offset)

    stored = side(5, offset=5)
    assert Staged.of(side(3, offset=3), sides, stored).whole().few.num_rows == 0
    assert Staged.of(side(7, offset=7), sides, stored).whole().few["amount"].to_pylist() == [7]


def test_a_row_knows_the_tombstone_of_an_old_deletion(small, monkeypatch):
    """In databases: tests/conformance/test_tombstones.py."""
    stored = row(small, counted, id=1, amount=7, _pos=30, _offset=3)
    deletion = row(small, counted, id=1, _pos=20, _offset=4, _deleted=True)
    tombstone = row(small, counted, id=1, _pos=None, _offset=5, _deleted=True)

    def after(*batches):
        rows = stored
        for brought in batches:
            found = Staged.of(brought, counted, rows).whole()
            rows = found.rows if found.count else rows
        (left,) = rows.collect()
        return left["amount"], left["_deleted"]

    assert after(deletion, tombstone) == (7, False)
    assert after(tombstone) == (None, True)
    monkeypatch.setattr(Staged, "_passed_over", lambda staged, rows: rows)  # the planted fault
    assert after(deletion, tombstone) == (None, True)


def test_a_stream_is_deleted_by_the_first_of_its_tombstones(small):
    stored = row(small, tickets, ticket_id="t1", status="open", _pos=2, _offset=2)
    first = row(small, tickets, ticket_id="t1", _pos=0, _offset=3, _deleted=True)
    staged = first.withColumns({name: F.lit(0).cast("bigint") for name in ("_first", *map(set_at, tickets.columns))})
    (left,) = Staged.of(staged, tickets, stored).whole().rows.collect()
    assert (left["_pos"], left["_offset"], left["_deleted"]) == (2, 3, True)


def test_a_value_of_another_life_of_the_source_is_not_taken(small):
    """In databases: tests/conformance/test_tablestore.py."""
    stored = row(small, noted, id=1, note="of the first", _pos=10, _offset=1)

    def staged(note, position, epoch):
        at = position if note else None
        found = row(small, noted, id=1, note=note, _epoch=epoch, _pos=position, _offset=position)
        return found.withColumn("_at_note", F.lit(at).cast("bigint"))

    assert Staged.of(staged(None, 20, 0), noted, stored).whole().few["note"].to_pylist() == ["of the first"]
    with pytest.raises(UndecodableRecord, match="the value of note is unavailable"):
        Staged.of(staged(None, 20, 1), noted, stored).whole()
    assert Staged.of(staged("of the second", 5, 1), noted, stored).whole().few["note"].to_pylist() == ["of the second"]


def row(small, table, **values):
    """One row of a table's state."""
    columns = state_columns(table)
    whole = {"_epoch": 0, "_deleted": False, **values}
    ddl = ", ".join(f"{name} {kind.ddl}" for name, kind in columns.items())
    return small.createDataFrame([tuple(whole.get(name) for name in columns)], ddl)
