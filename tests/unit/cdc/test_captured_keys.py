"""A captured topic has the rows of its table under their keys, whatever a collation takes for equal."""

from __future__ import annotations

import datetime as dt
import json
import random
import uuid
from decimal import Decimal

import pytest
import sqlalchemy as sa

from cdc import UtcDateTime, capture_table
from eventstore.backends.sql.sqlite_log import SqliteLog


def declared(*key):
    return sa.Table("k", sa.MetaData(), *key, sa.Column("v", sa.Integer))


@pytest.fixture
def engine(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    sa.event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA synchronous = OFF"))
    yield engine
    engine.dispose()


def rows_of_topic(engine):
    """What a reader of the topic ends with: the last value of each key."""
    rows = {}
    with SqliteLog(engine.url.database) as log:
        for page in log.records("t", 0, log.end_offsets(["t"])["t"][0]):
            rows.update((key, value and json.loads(value)["after"]) for _, key, value, *_ in page)
    return sorted(map(json.dumps, filter(None, rows.values())))


def rows_of_table(engine, table):
    """What a snapshot of the table would say: that of a topic which never saw another row."""
    capture_table(engine, table, topic="t")
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM factfold_changes")
        for name in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars().all():
            connection.exec_driver_sql(f'DROP TRIGGER "{name}"')
    capture_table(engine, table, topic="t")
    return rows_of_topic(engine)


KEYS = {
    "nocase": "(id TEXT COLLATE NOCASE PRIMARY KEY, v INTEGER)",
    "rtrim": "(id TEXT COLLATE RTRIM PRIMARY KEY, v INTEGER)",
    "nocase in the key alone": "(id TEXT, v INTEGER, PRIMARY KEY (id COLLATE NOCASE))",
    "binary in the key alone": "(id TEXT COLLATE NOCASE, v INTEGER, PRIMARY KEY (id COLLATE BINARY))",
    "nocase and binary": "(id TEXT PRIMARY KEY, v INTEGER, UNIQUE (id COLLATE NOCASE))",
    "without rowid": "(id TEXT COLLATE NOCASE PRIMARY KEY, v INTEGER) WITHOUT ROWID",
    "composite": "(id TEXT COLLATE NOCASE, part TEXT COLLATE RTRIM, v INTEGER, PRIMARY KEY (part, id))",
}
STATEMENTS = (
    ["UPDATE k SET id = 'A'"],
    ["UPDATE k SET id = 'a  '"],
    ["UPDATE k SET id = 'A', v = 2"],
    ["INSERT OR REPLACE INTO k (id, v) VALUES ('A', 2)"],
    ["INSERT OR REPLACE INTO k (id, v) VALUES ('a ', 2)"],
    ["INSERT OR IGNORE INTO k (id, v) VALUES ('A', 2)", "DELETE FROM k", "INSERT INTO k (id, v) VALUES ('A', 3)"],
    ["INSERT OR IGNORE INTO k (id, v) VALUES ('A', 2)", "UPDATE k SET v = 4"],
    ["INSERT OR REPLACE INTO k (id, v) VALUES ('A', 2), ('a', 3), ('A', 4)"],
    ["INSERT INTO k (id, v) VALUES ('b', 2)", "UPDATE OR REPLACE k SET id = 'A' WHERE id = 'b'"],
    ["INSERT INTO k (id, v) VALUES ('b', 2)", "UPDATE OR IGNORE k SET id = 'A' WHERE id = 'b'"],
    ["INSERT OR FAIL INTO k (id, v) VALUES ('c', 2)", "INSERT OR ABORT INTO k (id, v) VALUES ('d', 2)"],
    ["UPDATE k SET id = 'A'", "UPDATE k SET id = 'a'", "UPDATE k SET v = 9"],
    ["UPDATE k SET id = 'A'", "DELETE FROM k"],
)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_spelled_otherwise_leaves_no_row_behind(engine, key):
    parts = ["part"] if key == "composite" else []
    table = declared(*(sa.Column(name, sa.Text, primary_key=True) for name in ("id", *parts)))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE k {KEYS[key]}")
    capture_table(engine, table, topic="t")
    wrong = {}
    for statements in STATEMENTS:
        for statement in ["DELETE FROM k", "INSERT INTO k (id, v) VALUES ('a', 1)", *statements]:
            if parts:
                statement = statement.replace("(id, v)", "(id, part, v)").replace("', ", "', 'x', ")
                statement = statement.replace("'A', 'x', v = 2", "'A', part = 'x ', v = 2")
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
        told, stored = rows_of_topic(engine), rows_of_table(engine, table)
        if told != stored:
            wrong["; ".join(statements)] = f"{told}, the table has {stored}"
    assert wrong == {}


MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 6)
VALUES = {
    "integer": (sa.Integer, [0, 1, -1, 2**31 - 1]),
    "big": (sa.BigInteger, [0, 2**63 - 1, -(2**63)]),
    "double": (sa.Double, [0.0, -0.0, 0.1, 1e300, 1.0]),
    "decimal": (sa.Numeric(15, 4), [Decimal(0), Decimal("-0.0000"), Decimal("1.5000"), Decimal(1)]),
    "text": (sa.Text, ["", "a", "A", "a ", "ä", "Ä", "ẞ", "1", "01"]),
    "boolean": (sa.Boolean, [True, False]),
    "uuid": (sa.Uuid, [uuid.UUID(int=0), uuid.UUID(int=10**38)]),
    "date": (sa.Date, [MOMENT.date(), dt.date(1, 1, 1)]),
    "time": (sa.Time, [MOMENT.time(), dt.time()]),
    "datetime": (sa.DateTime, [MOMENT, MOMENT.replace(microsecond=0)]),
    "moment": (UtcDateTime, [MOMENT.replace(tzinfo=dt.UTC), MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))]),
    "enum": (sa.Enum("a", "A", "b"), ["a", "A", "b"]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_topic_follows_keys_of_every_type_through_every_statement(engine, kind):
    column_type, values = VALUES[kind]
    table = declared(sa.Column("id", column_type, primary_key=True), sa.Column("part", sa.Text, primary_key=True))
    table.create(engine)
    capture_table(engine, table, topic="t")
    chance = random.Random(kind)
    for number in range(60):
        row = {"id": chance.choice(values), "part": chance.choice("xX"), "v": number}
        here = sa.and_(table.c.id == chance.choice(values), table.c.part == chance.choice("xX"))
        statement = chance.choice([
            table.insert().prefix_with("OR REPLACE").values(row), table.insert().prefix_with("OR IGNORE").values(row),
            table.update().prefix_with("OR REPLACE").where(here).values(row), table.delete().where(here),
            table.update().where(here).values(v=number),
        ])  # fmt: skip
        with engine.begin() as connection:
            connection.execute(statement)
    told = rows_of_topic(engine)
    assert told == rows_of_table(engine, table)


def test_a_row_is_looked_up_by_the_index_of_its_key(engine):
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE k {KEYS['nocase']}")
    capture_table(engine, declared(sa.Column("id", sa.Text, primary_key=True)), topic="t")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
            " INSERT INTO k SELECT 'key' || i, i FROM n"
        )
        # A scan a row would take 25 million steps, and these some hundreds a row.
        steps = []
        connection.connection.driver_connection.set_progress_handler(lambda: steps.append(1) and None, 1000)
        connection.exec_driver_sql("UPDATE k SET id = upper(id)")
    assert len(steps) < 5_000
