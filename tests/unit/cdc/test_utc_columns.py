"""Columns of UTC keep the instant of each value, and a type that loses the offset is refused."""

from __future__ import annotations

import datetime as dt
import json
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from cdc import ChangeDecoder, UtcDateTime, capture_table
from cdc.errors import UndecodableChange, UnsupportedEncoding
from eventstore.backends.sql.sqlite_log import SqliteLog
from eventstore.errors import StoreUnavailable

EAST = dt.timezone(dt.timedelta(hours=2))
MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 6)


class AsGiven(sa.types.TypeDecorator[dt.time]):
    """A time of day with its offset, as text: nothing is lost."""

    impl, cache_ok, timezone, python_type = sa.Time, True, True, dt.time

    def load_dialect_impl(self, dialect):
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value, dialect):
        return None if value is None else value.isoformat()


@pytest.fixture
def engine(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}", connect_args={"timeout": 0})
    yield engine
    engine.dispose()


def table_of(kind):
    return sa.Table("k", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("v", kind))


def captured(engine, kind, value):
    """The value as the trigger wrote it, and a function that reads it as `ChangeDecoder` does."""
    table = table_of(kind)
    table.create(engine)
    capture_table(engine, table, topic="t")
    with engine.begin() as connection:
        if isinstance(value, str):
            connection.exec_driver_sql("INSERT INTO k VALUES (1, ?)", (value,))
        else:
            connection.execute(table.insert().values(id=1, v=value))
    with SqliteLog(engine.url.database) as log:
        ((_, key, payload, *_),) = next(log.records("t", 0, 99))
    decoder = ChangeDecoder(table, full_identity=True)
    return json.loads(payload)["after"]["v"], lambda: decoder.decode(key.encode(), payload, offset=1).after["v"]


@pytest.mark.parametrize(
    "kind",
    [
        sa.DateTime(timezone=True), sa.TIMESTAMP(timezone=True), sa.Time(timezone=True), sa.DATETIME(timezone=True),
        sqlite.DATETIME(timezone=True), sqlite.TIME(timezone=True),
        sa.DateTime(timezone=True).with_variant(sa.TIMESTAMP(timezone=True), "sqlite"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_type_that_loses_the_offset_is_refused_with_one_that_keeps_it(engine, kind):
    with pytest.raises(UnsupportedEncoding, match="loses the offset") as caught:
        capture_table(engine, table_of(kind), topic="t")
    assert "declare the column as" in caught.value.remedy


@pytest.mark.parametrize("zone", [dt.UTC, EAST, ZoneInfo("Asia/Kathmandu")], ids=str)
def test_a_utc_column_keeps_the_instant_of_every_value(engine, zone):
    text, read = captured(engine, UtcDateTime(), MOMENT.replace(tzinfo=zone))
    assert text.endswith("Z")
    assert read() == MOMENT.replace(tzinfo=zone)
    with engine.connect() as connection:
        found = connection.execute(sa.select(table_of(UtcDateTime()).c.v)).scalar_one()
    assert (found, found.tzinfo) == (MOMENT.replace(tzinfo=zone), dt.UTC)


def test_a_utc_column_refuses_a_moment_without_a_zone_and_takes_null(engine):
    table = table_of(UtcDateTime())
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, v=None))
        assert connection.execute(sa.select(table.c.v)).scalar_one() is None
        with pytest.raises(sa.exc.StatementError, match="has no time zone"):
            connection.execute(table.insert().values(id=2, v=MOMENT))


def test_a_type_of_ones_own_that_keeps_the_offset_is_captured(engine):
    _, read = captured(engine, AsGiven(), dt.time(3, 4, tzinfo=EAST))
    assert read() == dt.time(3, 4, tzinfo=EAST)


@pytest.mark.parametrize(
    ("written", "instant"),
    [
        ("2024-01-02 03:04:05", MOMENT.replace(microsecond=0, tzinfo=dt.UTC)),
        ("2024-01-02T03:04:05.000006+02:00", MOMENT.replace(tzinfo=EAST)),
        ("2024-01-02 03:04:05.000006-02:00", MOMENT.replace(tzinfo=dt.timezone(-dt.timedelta(hours=2)))),
        ("2024-01-02 03:04:05.000006Z", MOMENT.replace(tzinfo=dt.UTC)),
    ],
)
def test_an_offset_that_another_program_wrote_is_kept(engine, written, instant):
    assert captured(engine, UtcDateTime(), written)[1]() == instant


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (sa.DateTime(), "2024-01-02T03:04:05+02:00"), (sa.DateTime(), "2024-01-02 03:04:05Z"),
        (sa.Time(), "03:04:05+02:00"), (sa.Time(), "03:04:05Z"), (sa.Date(), "2024-01-02+02:00"),
        (UtcDateTime(), "2024-01-02+02:00"), (UtcDateTime(), "2024-01-02"),
    ],
)  # fmt: skip
def test_an_offset_in_a_column_without_one_is_refused_by_its_reader(engine, kind, written):
    _, read = captured(engine, kind, written)
    with pytest.raises(UndecodableChange, match="cannot hold"):
        read()


def test_a_capture_under_the_lock_of_another_connection_is_unavailable(engine):
    table = table_of(sa.Integer())
    table.create(engine)
    with engine.connect() as holder:
        holder.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another connection has the lock"):
            capture_table(engine, table, topic="t")
    assert capture_table(engine, table, topic="t")
