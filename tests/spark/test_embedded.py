"""One file without servers: its topics as a log, and its states compared with its tables."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from contextlib import closing
from decimal import Decimal

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from cdc import UtcDateTime, capture_table, compare_embedded, compare_tables
from cdc.errors import ConnectorTimeout, InvalidConnector, SourceNotReady
from eventstore import ANY, Settings, SqlEventStore
from eventstore.errors import TopicMissing
from factfold.cli.cdc import compare as command_line
from projections import ComparedGroup, Environment, ProjectionGroup, Table, rebuild, view
from projections.logs.offsets import OffsetRange
from projections.spark.reading import store_source
from projections.spark.reading.store_source import StoreLog
from projections.stores.sqlite import SqliteTableStore
from tests.errors import raises
from tests.integration.following import followed
from tests.integration.tickets import CUSTOMERS, Ticket
from tests.unit.cdc.declared import postgres

TOPICS = ["ticket", "customers"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Sixty events and as many changes, written in turns."""
    path = tmp_path_factory.mktemp("store") / "desk.db"
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        CUSTOMERS.create(store.engine)
        capture_table(store.engine, CUSTOMERS, topic="customers")
        for number in range(60):
            store.append(f"ticket-t{number % 7}", [Ticket.Moved(customer_id=number)], expected=ANY)
            with store.engine.begin() as connection:
                connection.execute(sa.insert(CUSTOMERS).values(id=number, name=f"name {number}"))
        yield StoreLog(str(path))


def whole(log):
    with log.open() as offsets:
        return OffsetRange(offsets.beginning_offsets(TOPICS), offsets.end_offsets(TOPICS))


def as_rows(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_tasks_and_driver_read_the_same_records_each_once(spark, log, monkeypatch):
    by_driver = log.scan(spark, whole(log))
    monkeypatch.setattr(store_source, "DRIVER_OFFSETS", 0)
    monkeypatch.setattr(store_source, "OFFSETS", 13)
    by_tasks = log.scan(spark, whole(log))
    assert by_tasks.rdd.getNumPartitions() == 10
    assert by_tasks.dtypes == by_driver.dtypes
    rows = as_rows(by_tasks.toArrow())
    with log.open() as opened:
        assert rows == as_rows(by_driver.toArrow()) == as_rows(opened.fetch(whole(log)))
    assert len(rows) == len({row[:3] for row in rows}) == 120


def test_a_range_gives_what_lies_in_it(spark, log):
    part = OffsetRange({"ticket": {0: 11}, "customers": {0: 61}}, {"ticket": {0: 14}, "customers": {0: 61}})
    with log.open() as opened:
        found = opened.fetch(part).to_pylist()
    assert [(r["topic"], r["offset"], r["key"].decode()) for r in found] == [
        ("ticket", 11, "ticket-t3@1"), ("ticket", 12, "ticket-t4@1"), ("ticket", 13, "ticket-t5@1"),
    ]  # fmt: skip


def test_a_topic_that_is_not_there_is_named_with_those_there_are(log):
    with log.open() as offsets, raises(TopicMissing, remedy="customers, ticket"):
        offsets.end_offsets(["nowhere"])


# ---- captured tables of a SQLite file, compared with the states that a runner makes of them, and repaired


TOPIC = "shop.public.typed"
TYPED = sa.Table(
    "typed", sa.MetaData(), sa.Column("id", sa.Uuid, primary_key=True), sa.Column("whole", sa.BigInteger),
    sa.Column("flag", sa.Boolean), sa.Column("share", sa.Double), sa.Column("money", sa.Numeric(15, 4)),
    sa.Column("text", sa.String), sa.Column("day", sa.Date), sa.Column("clock", sa.Time), sa.Column("at", sa.DateTime),
    sa.Column("seen", UtcDateTime()), sa.Column("tree", sa.JSON),
)  # fmt: skip
NAMES = [column.name for column in TYPED.columns][1:]
EAST = dt.timezone(dt.timedelta(hours=2))


def row(number, **changed):
    values = {
        "id": uuid.UUID(int=number), "whole": 9_007_199_254_740_993, "flag": number % 2 == 0, "share": number / 3,
        "money": Decimal("-12.5"), "text": "it's \"é\"", "day": dt.date(2024, 2, 29), "clock": dt.time(3, 4, 5),
        "at": dt.datetime(2024, 1, 2, 3, 4, 5, 60), "seen": dt.datetime(2024, 1, 2, 3, 4, 5, 678901, EAST),
        "tree": {"a": [1, None]},
    }  # fmt: skip
    return values | changed


types = Table.from_changelog(TYPED, topic=TOPIC)


@view(key="id")
def typed_ids(types):
    return types.select("id")


GROUP = ProjectionGroup("embedded_comparison", [typed_ids])


@pytest.fixture(scope="module")
def desk(small, tmp_path_factory):
    """The file, and an environment; rows 1 to 5 come from the first snapshot, 6 to 10 as changes."""
    path = tmp_path_factory.mktemp("desk") / "desk.db"
    engine = sa.create_engine(f"sqlite:///{path}")
    TYPED.metadata.create_all(engine)
    insert(engine, *(row(number) for number in range(1, 6)))
    capture_table(engine, TYPED, topic=TOPIC)
    insert(engine, *(row(number) for number in range(6, 10)), {"id": uuid.UUID(int=10)})
    store = SqliteTableStore(path)
    store.prepare()
    environment = Environment(small, small, store, StoreLog(store.path))
    rebuild(environment, GROUP)
    yield engine, environment
    store.close()
    engine.dispose()


LEGACY = sa.Table(
    "Kunden", sa.MetaData(), sa.Column("Kunden-Nr.", sa.Integer, primary_key=True, key="number"),
    sa.Column("Größe \"(cm)\"", sa.Numeric(10, 2), key="size"), sa.Column("number", sa.Text, key="remark"),
)  # fmt: skip
legacy = Table.from_changelog(LEGACY, topic="Kunden")


@view(key="number")
def customers(legacy):
    return legacy.select("number", "size", "remark")


RENAMED = ProjectionGroup("renamed_columns", [customers])


def test_columns_that_the_file_names_otherwise_are_captured_compared_and_repaired(small, tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'legacy.db'}")
    LEGACY.create(engine)
    with engine.begin() as connection:
        connection.execute(LEGACY.insert(), [{"number": n, "size": Decimal(n), "remark": f"it's {n}"} for n in (1, 2)])
    capture_table(engine, LEGACY, topic="Kunden")
    with closing(SqliteTableStore(tmp_path / "legacy.db")) as store:
        store.prepare()
        environment = Environment(small, small, store, StoreLog(store.path))
        rebuild(environment, RENAMED)
        with engine.begin() as connection:
            connection.execute(LEGACY.update().where(LEGACY.c.number == 1).values(size=Decimal("2.5"), remark=None))
        with followed(environment, RENAMED), ComparedGroup(str(engine.url), RENAMED) as group:
            (found,) = compare_embedded(group.tables, patience=30)
            assert (found.source_rows, found.state_rows, found.equal, found.notes) == (2, 2, True, ())
            with store.transaction() as connection:
                run = store.serving_state("renamed_columns").run
                state = f'"factfold_{run.group}_{run.generation}$state_legacy"'
                connection.exec_driver_sql(f"UPDATE {state} SET size = '9.00' WHERE number = 2")
                connection.exec_driver_sql(f"DELETE FROM {state} WHERE number = 1")
            (wrong,) = compare_embedded(group.tables, patience=30)
            assert (wrong.missing, wrong.differing_columns) == ((("1",),), {("2",): ("size",)})
            (repaired,) = compare_embedded(group.tables, patience=30, repair=True)
            assert (repaired.repaired, repaired.equal) == (2, True)
        with store.looking() as connection:
            shown = connection.exec_driver_sql("SELECT number, size, remark FROM customers ORDER BY 1").all()
    assert shown == [(1, "2.50", None), (2, "2.00", "it's 2")]
    engine.dispose()


def insert(engine, *rows):
    with engine.begin() as connection:
        for one in rows:
            connection.execute(TYPED.insert().values(one))


def run(engine, *statements):
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def compared(engine, **options):
    with ComparedGroup(str(engine.url), GROUP) as group:
        (found,) = compare_embedded(group.tables, **options)
    return found


def keys(*numbers):
    return tuple((str(uuid.UUID(int=number)),) for number in numbers)


def wrong(found):
    return found.missing, found.extra, found.differing


STATE = '"factfold_embedded_comparison_1$state_types"'


def unseen(engine, statement):
    """Change the table as if no trigger had seen it."""
    with engine.begin() as connection:
        triggers = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").all()
        for name, _ in triggers:
            connection.exec_driver_sql(f'DROP TRIGGER "{name}"')
        connection.exec_driver_sql(statement)
        for _, sql in triggers:
            connection.exec_driver_sql(sql)


def test_a_value_of_every_type_is_equal_and_each_column_is_held_against_the_source(desk):
    engine, _ = desk
    found = compared(engine)
    assert (found.equal, found.source_rows, found.state_rows, found.not_compared) == (True, 10, 10, {})
    key = str(uuid.UUID(int=7))
    kept = f"CREATE TABLE kept AS SELECT * FROM {STATE} WHERE id = '{key}'"
    nothing = ", ".join(f"{name} = NULL" for name in NAMES)
    run(engine, kept, f"UPDATE {STATE} SET {nothing} WHERE id = '{key}'")
    found = compared(engine)
    assert (wrong(found), found.differing_columns) == (((), (), keys(7)), {(key,): tuple(NAMES)})
    back = ", ".join(f"{name} = (SELECT {name} FROM kept)" for name in NAMES)
    run(engine, f"UPDATE {STATE} SET {back} WHERE id = '{key}'", "DROP TABLE kept")
    assert compared(engine).equal


def test_what_went_wrong_unseen_is_found_and_repaired(desk):
    engine, environment = desk
    run(engine, f"DELETE FROM {STATE} WHERE id = '{uuid.UUID(int=1)}'")
    run(engine, f"UPDATE {STATE} SET _deleted = 1 WHERE id = '{uuid.UUID(int=6)}'")
    run(engine, f"UPDATE {STATE} SET text = 'another' WHERE id IN ('{uuid.UUID(int=2)}', '{uuid.UUID(int=7)}')")
    unseen(engine, f"DELETE FROM typed WHERE id IN ('{uuid.UUID(int=3).hex}', '{uuid.UUID(int=8).hex}')")
    unseen(engine, f"UPDATE typed SET money = 7 WHERE id = '{uuid.UUID(int=9).hex}'")
    assert wrong(compared(engine)) == (keys(1, 6), keys(3, 8), keys(2, 7, 9))
    with followed(environment, GROUP):
        repaired = compared(engine, repair=True)
    assert (repaired.equal, repaired.repaired) == (True, 7)
    rebuild(environment, GROUP)
    assert compared(engine).equal


def test_a_change_that_is_not_applied_yet_is_no_difference(desk):
    engine, environment = desk
    run(engine, f"UPDATE typed SET text = 'later' WHERE id = '{uuid.UUID(int=4).hex}'")
    with raises(
        ConnectorTimeout,
        code="state-behind",
        match=r"changes of table 'typed' were not applied in 0.3 s\n.*projections run",
    ):
        compared(engine, patience=0.3)
    with followed(environment, GROUP):
        assert compared(engine).equal


def test_a_column_that_the_table_has_lost_is_named(desk):
    engine, _ = desk
    unseen(engine, "ALTER TABLE typed ADD COLUMN more TEXT")
    found = compared(engine)
    assert (found.equal, found.notes) == (True, ("column more of the source is not declared in the model",))


def test_the_command_needs_no_connector_for_a_file(desk, monkeypatch):
    engine, _ = desk
    monkeypatch.setenv("FACTFOLD_VIEWS_URL", str(engine.url))
    words = ["compare", "--group", f"{__name__}:GROUP", "--json"]
    ran = CliRunner().invoke(command_line.app, words, catch_exceptions=False)
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["table"], told["equal"], told["source_rows"]) == (0, "typed", True, 8)


def test_a_table_that_is_not_captured_is_refused(desk):
    engine, _ = desk
    with pytest.raises(InvalidConnector, match="table 'other' is captured under no topic"):
        compared(engine, tables=["other"])


def test_a_topic_without_a_captured_table_is_refused(desk):
    engine, _ = desk
    run(engine, "UPDATE factfold_captures SET topic = 'another'")
    with pytest.raises(SourceNotReady, match=f"no table of the file is captured under topic '{TOPIC}'"):
        compared(engine)
    run(engine, f"UPDATE factfold_captures SET topic = '{TOPIC}'")


def test_a_state_in_a_file_is_not_compared_with_a_connectors_table(desk):
    engine, _ = desk
    settings = Settings.for_broker("127.0.0.1:1")
    with ComparedGroup(str(engine.url), GROUP) as group, pytest.raises(InvalidConnector, match="is in a SQLite file"):
        compare_tables(engine, postgres(), group.tables, settings)
