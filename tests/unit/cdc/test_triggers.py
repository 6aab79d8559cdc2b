"""Triggers on SQLite write what Debezium would: every change once, in its transaction, with values that come back."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import random
import uuid
from decimal import Decimal

import pytest
import sqlalchemy as sa

from cdc import ChangeDecoder, Op, UtcDateTime, capture_table
from cdc.errors import InvalidConnector, SourceNotReady, UnsupportedEncoding
from eventstore.backends.sql.changes import CHANGES
from eventstore.backends.sql.sqlite_log import SqliteLog
from eventstore.errors import InvalidIdentifier, TopicMissing
from tests.hostile_names import HOSTILE

TOPIC = "shop.public.customers"


class Colour(enum.Enum):
    red = 1
    blue = 2


CUSTOMERS = sa.Table(
    "customers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text),
    sa.Column("email", sa.Text, unique=True),
)  # fmt: skip
TYPED = sa.Table(
    "typed", sa.MetaData(), sa.Column("id", sa.Uuid, primary_key=True), sa.Column("whole", sa.BigInteger),
    sa.Column("flag", sa.Boolean), sa.Column("share", sa.Double), sa.Column("money", sa.Numeric(15, 4)),
    sa.Column("text", sa.String), sa.Column("day", sa.Date), sa.Column("clock", sa.Time), sa.Column("at", sa.DateTime),
    sa.Column("seen", UtcDateTime()), sa.Column("colour", sa.Enum(Colour)), sa.Column("tree", sa.JSON),
)  # fmt: skip


@pytest.fixture
def engine(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    CUSTOMERS.metadata.create_all(engine)
    TYPED.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def log(engine):
    with SqliteLog(engine.url.database) as log:
        yield log


def run(engine, *statements):
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement) if isinstance(statement, str) else statement)


def records(log, topic=TOPIC):
    end = log.end_offsets([topic])[topic][0]
    return [record[:3] for page in log.records(topic, 0, end) for record in page]


def changes(log, table=CUSTOMERS, topic=TOPIC, **options):
    decoder = ChangeDecoder(table, full_identity=True, **options)
    return [decoder.decode(key.encode(), value, offset=offset) for offset, key, value in records(log, topic)]


def seen(log):
    return [(c.op, c.key["id"], c.after and c.after["name"]) for c in changes(log)]


def test_rows_that_are_there_come_first_and_each_later_change_once(engine, log):
    run(engine, CUSTOMERS.insert().values(id=1, name="Ann"))
    assert capture_table(engine, CUSTOMERS, topic=TOPIC)
    run(engine, CUSTOMERS.insert().values(id=2, name="Bea"), "UPDATE customers SET name = 'Eve' WHERE id = 1")
    run(engine, "DELETE FROM customers WHERE id = 2")
    assert seen(log) == [
        (Op.SNAPSHOT, 1, "Ann"), (Op.INSERT, 2, "Bea"), (Op.UPDATE, 1, "Eve"), (Op.DELETE, 2, None),
        (Op.TOMBSTONE, 2, None),
    ]  # fmt: skip
    update, delete = changes(log)[2:4]
    assert (update.before["name"], delete.before["name"]) == ("Ann", "Bea")
    positions = [c.position for c in changes(log) if c.position]
    assert positions == sorted(positions)
    assert abs(update.time - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_a_changed_key_is_a_deletion_and_a_new_row(engine, log):
    capture_table(engine, CUSTOMERS, topic=TOPIC)
    run(engine, CUSTOMERS.insert().values(id=1, name="Ann"), "UPDATE customers SET id = 7")
    assert seen(log)[1:] == [(Op.DELETE, 1, None), (Op.TOMBSTONE, 1, None), (Op.INSERT, 7, "Ann")]


def test_a_change_that_is_rolled_back_was_never_there(engine, log):
    capture_table(engine, CUSTOMERS, topic=TOPIC)
    with engine.connect() as connection:
        connection.execute(CUSTOMERS.insert().values(id=1, name="Ann"))
        connection.rollback()
    run(engine, CUSTOMERS.insert().values(id=2, name="Bea"))
    assert seen(log) == [(Op.INSERT, 2, "Bea")]


def test_a_row_that_one_statement_writes_twice_ends_with_its_last_value(engine, log):
    capture_table(engine, CUSTOMERS, topic=TOPIC)
    run(engine, "INSERT INTO customers (id, name) VALUES (1, 'Ann'), (1, 'Bea')"
                " ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        "INSERT OR REPLACE INTO customers (id, name) VALUES (1, 'Eve')")  # fmt: skip
    newest = max(changes(log), key=lambda change: change.position)
    assert newest.after["name"] == "Eve"
    assert [c.after["name"] for c in changes(log)] == ["Ann", "Bea", "Eve"]


def test_declaring_a_capture_again_changes_nothing(engine, log):
    assert capture_table(engine, CUSTOMERS, topic=TOPIC)
    run(engine, CUSTOMERS.insert().values(id=1, name="Ann"))
    assert not capture_table(engine, CUSTOMERS, topic=TOPIC)
    assert seen(log) == [(Op.INSERT, 1, "Ann")]


def test_a_table_that_was_made_anew_is_captured_anew_and_lost_rows_are_deleted(engine, log):
    capture_table(engine, CUSTOMERS, topic=TOPIC)
    run(engine, CUSTOMERS.insert().values(id=1, name="Ann"), CUSTOMERS.insert().values(id=2, name="Bea"))
    CUSTOMERS.drop(engine)
    CUSTOMERS.create(engine)
    run(engine, CUSTOMERS.insert().values(id=2, name="Eve"))
    assert capture_table(engine, CUSTOMERS, topic=TOPIC)
    assert seen(log)[2:] == [(Op.DELETE, 1, None), (Op.SNAPSHOT, 2, "Eve")]
    assert max(c.position for c in changes(log)) == changes(log)[-1].position


def test_a_new_column_is_captured_once_it_is_declared(engine, log):
    capture_table(engine, CUSTOMERS, topic=TOPIC)
    run(engine, CUSTOMERS.insert().values(id=1, name="Ann"), "ALTER TABLE customers ADD COLUMN score INTEGER DEFAULT 5")
    grown = sa.Table("customers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True),
                     sa.Column("score", sa.Integer))  # fmt: skip
    assert capture_table(engine, grown, topic=TOPIC)
    run(engine, "UPDATE customers SET score = 6")
    read = changes(log, grown, null_if_absent=["score"])
    assert [c.after["score"] for c in read] == [None, 5, 6]


def random_row(chance):
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=chance.randrange(4 * 10**15))
    return {
        "id": uuid.UUID(int=chance.getrandbits(128)), "whole": chance.randrange(-(2**63), 2**63),
        "flag": chance.random() < 0.5, "share": chance.uniform(-10, 10) * 10 ** chance.uniform(-100, 100),
        "money": Decimal(chance.randrange(-(10**15) + 1, 10**15)).scaleb(-4),
        "text": "".join(chance.choices("aü\"\\'\n\t\x01\U0001f600{}", k=chance.randrange(6))),
        "day": moment.date(), "clock": moment.time(), "at": moment, "seen": moment.replace(tzinfo=dt.UTC),
        "colour": chance.choice(list(Colour)), "tree": chance.choice([{"a": [1, None]}, [], "x", 1.5]),
    }  # fmt: skip


def test_values_of_every_type_come_back_as_they_were(engine, log):
    chance = random.Random(7)
    capture_table(engine, TYPED, topic="typed")
    written = [random_row(chance) for _ in range(300)]
    nothing = dict.fromkeys(TYPED.c.keys()) | {"id": uuid.UUID(int=1), "tree": sa.null()}
    extremes = random_row(chance) | {"share": math.inf, "money": Decimal(0), "text": ""}
    run(engine, *(TYPED.insert().values(row) for row in (*written, nothing, extremes)))
    found = [change.after for change in changes(log, TYPED, "typed")]
    assert found == [*written, nothing | {"tree": None}, extremes]
    assert [change.key for change in changes(log, TYPED, "typed")] == [{"id": row["id"]} for row in found]


@pytest.mark.parametrize(
    ("column", "sql", "arrives"),
    [
        ("whole", "'many'", "many"), ("flag", "7", "7"), ("share", "'half'", "half"), ("money", "'much'", "much"),
        ("text", "x'00ff'", None), ("day", "20130517", "20130517Z"), ("at", "'yesterday'", "yesterdayZ"),
        ("whole", "1.5", "1.5"), ("money", "9e999", "Inf"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_of_its_columns_type_is_carried_as_it_is_and_fails_no_statement(
    engine, log, column, sql, arrives
):
    capture_table(engine, TYPED, topic="typed")
    run(engine, f"INSERT INTO typed (id, {column}) VALUES ('{'0' * 32}', {sql})")
    (record,) = records(log, "typed")
    if arrives is not None:
        assert json.loads(record[2])["after"][column] == arrives


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (sa.LargeBinary, "has no form"), (sa.Numeric(18, 4), "no more than 15"), (sa.Numeric, "no more than 15"),
        (sa.Interval, "has no form"), (sa.ARRAY(sa.Integer), "has no form"), (sa.PickleType, "has no form"),
    ],
)  # fmt: skip
def test_a_type_that_could_not_come_back_is_refused(engine, kind, words):
    table = sa.Table("odd", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("x", kind))
    with pytest.raises(UnsupportedEncoding, match=words):
        capture_table(engine, table, topic="odd")


def test_tables_that_cannot_be_captured_are_refused_with_the_reason(engine):
    keyless = sa.Table("keyless", sa.MetaData(), sa.Column("x", sa.Integer))
    with pytest.raises(InvalidConnector, match="has no primary key"):
        capture_table(engine, keyless, topic="t")
    absent = sa.Table("absent", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
    with pytest.raises(SourceNotReady, match="'absent' does not exist"):
        capture_table(engine, absent, topic="t")
    wider = sa.Table("customers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True),
                     sa.Column("more", sa.Text))  # fmt: skip
    with pytest.raises(SourceNotReady, match="lacks more"):
        capture_table(engine, wider, topic="t")
    elsewhere = sa.create_mock_engine("postgresql+psycopg://", lambda *_: None)
    elsewhere.url = sa.make_url("postgresql+psycopg://u:secret@h/d")
    with pytest.raises(InvalidConnector, match="not of postgresql") as caught:
        capture_table(elsewhere, CUSTOMERS, topic="t")
    assert "secret" not in str(caught.value)


def test_one_table_has_one_topic_and_one_topic_one_table(engine):
    capture_table(engine, CUSTOMERS, topic=TOPIC)
    with pytest.raises(InvalidConnector, match=f"captured under topic '{TOPIC}' already"):
        capture_table(engine, CUSTOMERS, topic="other")
    with pytest.raises(InvalidConnector, match="table 'customers' is captured"):
        capture_table(engine, TYPED, topic=TOPIC)


@pytest.mark.parametrize("name", ["a'); DROP TABLE customers; --", 'a"b', "a b", "ü", "a\x00b"])
def test_a_name_that_could_be_anything_else_in_sql_is_refused(engine, name):
    key = sa.Column("id", sa.Integer, primary_key=True)
    with pytest.raises(InvalidIdentifier):
        capture_table(engine, sa.Table(name, sa.MetaData(), key), topic="t")
    with pytest.raises(InvalidIdentifier):
        capture_table(engine, CUSTOMERS, topic=name)


def is_of_text(name):
    return bool(name) and name.isprintable() and "%" not in name and "${" not in name and len(name.encode()) <= 63


def test_columns_of_any_printable_names_are_captured_as_they_are(engine, log):
    names = {name.lower(): name for name in HOSTILE if is_of_text(name)}  # SQLite tells none apart by case
    assert len(names) >= 100
    key, *others = (sa.Column(name, sa.Text, key=f"c{n}") for n, name in enumerate(names.values()))
    key.primary_key = True
    table = sa.Table("odd", sa.MetaData(), key, *others)
    table.create(engine)
    capture_table(engine, table, topic="odd")
    row = {column.key: f"{column.name} of 1" for column in table.columns}
    run(engine, table.insert().values(row), table.update().values({others[0].key: 'it\'s "new"'}), table.delete())

    written = {column.name: row[column.key] for column in table.columns}
    assert [(change.op, change.key, change.after) for change in changes(log, table, "odd")] == [
        (Op.INSERT, {key.name: row["c0"]}, written),
        (Op.UPDATE, {key.name: row["c0"]}, written | {others[0].name: 'it\'s "new"'}),
        (Op.DELETE, {key.name: row["c0"]}, None),
        (Op.TOMBSTONE, {key.name: row["c0"]}, None),
    ]


@pytest.mark.parametrize("name", ["50 %", "${env}", "a\x00b"])
def test_columns_of_names_that_others_would_read_otherwise_are_refused(engine, name):
    table = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column(name, sa.Text))
    with pytest.raises(InvalidIdentifier, match="column"):
        capture_table(engine, table, topic="t")


def test_a_capture_that_fails_leaves_nothing_behind(engine, monkeypatch):
    run(engine, CUSTOMERS.insert().values(id=1, name="Ann"))
    monkeypatch.setattr("cdc.embedded._NOW_MS", "no_such_function()")
    with pytest.raises(sa.exc.OperationalError):
        capture_table(engine, CUSTOMERS, topic=TOPIC)
    with engine.connect() as connection:
        names = connection.scalars(sa.text("SELECT name FROM sqlite_master WHERE name LIKE 'factfold%'")).all()
    assert names == []


def test_a_log_of_many_tables_gives_each_topic_its_own_records(engine, log):
    capture_table(engine, CUSTOMERS, topic=TOPIC)
    capture_table(engine, TYPED, topic="typed")
    run(engine, CUSTOMERS.insert().values(id=1, name="Ann"), TYPED.insert().values(id=uuid.UUID(int=1)),
        CUSTOMERS.insert().values(id=2, name="Bea"))  # fmt: skip
    assert [offset for offset, _, _ in records(log)] == [1, 3]
    assert log.end_offsets([TOPIC, "typed"]) == {TOPIC: {0: 4}, "typed": {0: 3}}
    assert log.beginning_offsets([TOPIC]) == {TOPIC: {0: 0}}
    with pytest.raises(TopicMissing, match="'nothing'") as caught:
        log.end_offsets(["nothing"])
    assert "typed" in caught.value.remedy


def test_a_pages_end_loses_no_record(engine, log, monkeypatch):
    monkeypatch.setattr("eventstore.backends.sql.sqlite_log._PAGE", 3)
    capture_table(engine, CUSTOMERS, topic=TOPIC)
    with engine.begin() as connection:
        connection.execute(CUSTOMERS.insert(), [{"id": i} for i in range(10)])
        assert connection.scalar(sa.select(sa.func.count()).select_from(CHANGES)) == 10
    assert [json.loads(key)["id"] for _, key, _ in records(log)] == list(range(10))
