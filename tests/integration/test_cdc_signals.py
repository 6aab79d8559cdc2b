"""Snapshots asked for while a connector streams: with a condition, in one go, paused, stopped, of a new table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from cdc import ConnectClient, PostgresSource, apply_connector, prepare_source
from cdc.errors import SnapshotFailed, SourceNotReady
from cdc.source.notifications import Notification, Stage, TableRead
from cdc.source.signal_table import clear_signals, prepare_signals
from cdc.source.signals import Signals
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from tests.errors import raises
from tests.integration.conftest import Captured

# In chunks of 5 rows this takes Debezium half a minute or more, on a busy machine too: time to pause and to stop it.
MANY = 20_000


@dataclasses.dataclass
class Shop:
    """A captured database whose connector hears signals."""

    database: Captured
    source: PostgresSource
    signals: Signals

    def rows(self, records: list[TopicRecord]) -> list[dict[str, Any]]:
        """The change events of records that were read again by a snapshot on demand."""
        events = [json.loads(record.value) for record in records if record.value]
        return [event for event in events if event["source"]["snapshot"] == "incremental"]


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Captured], connect: ConnectClient, settings: Settings) -> Shop:
    database = captured(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        "CREATE TABLE parts (id int PRIMARY KEY, name text)",
        "INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 20) n",
        f"INSERT INTO parts SELECT n, 'part ' || n FROM generate_series(1, {MANY}) n",
    )
    source = database.source(
        tables=("public.items", "public.parts"),
        signal_table="public.signals",
        notifications_topic=f"{database.name}.notifications",
        partitions=1,
        extra={"incremental.snapshot.chunk.size": 5},
    )
    apply_connector(connect, database.prepared(source), source=database.engine)
    return Shop(database, source, Signals(database.engine, source, settings, connect))


def test_an_incremental_snapshot_reads_the_rows_of_its_condition_again_and_no_others(shop, records_of):
    asked = shop.signals.snapshot(["public.items"], where={"public.items": "id BETWEEN 7 AND 9 AND name <> 'it''em'"})
    assert asked.wait() == (TableRead("public.items", 3),)
    again = shop.rows(records_of(shop.source.topic("public.items"), count=23))
    assert [(event["op"], event["after"]["id"]) for event in again] == [("r", 7), ("r", 8), ("r", 9)]


def test_a_blocking_snapshot_reads_them_in_one_go(shop, records_of):
    before = len(records_of(shop.source.topic("public.items"), count=20))
    asked = shop.signals.blocking_snapshot(["public.items"], where={"public.items": "id IN (1, 20)"})
    assert asked.wait() == (TableRead("public.items", 2),)
    last = records_of(shop.source.topic("public.items"), count=before + 2)[-2:]
    assert [json.loads(record.value or b"")["after"]["id"] for record in last] == [1, 20]


def test_a_snapshot_rests_goes_on_and_is_stopped(shop):
    heard: list[Notification] = []
    asked = shop.signals.snapshot(["public.parts", "public.items"])
    assert shop.signals.pause().stage == Stage.PAUSED
    assert shop.signals.resume().stage == Stage.RESUMED
    assert set(shop.signals.stop(["public.items"]).tables) == {"public.items"}
    assert shop.signals.stop().stage == Stage.ABORTED
    with raises(SnapshotFailed, code="snapshot-aborted") as aborted:
        asked.wait(on_notification=heard.append)
    assert aborted.value.tables == {"public.parts": "STOPPED", "public.items": "STOPPED"}
    assert [n.stage for n in heard if n.stage in (Stage.STARTED, Stage.PAUSED, Stage.RESUMED)] == [
        Stage.STARTED,
        Stage.PAUSED,
        Stage.RESUMED,
    ]


def test_a_table_that_runs_uncaptured_is_named_with_its_remedy(shop):
    declared = dataclasses.replace(shop.source, tables=(*shop.source.tables, "public.later"))
    asked = dataclasses.replace(shop.signals, source=declared).snapshot(["public.later", "public.items"])
    with pytest.raises(SnapshotFailed, match=r"public\.later UNKNOWN_SCHEMA.*\n.*factfold cdc apply"):
        asked.wait()


def test_a_condition_that_is_no_sql_is_named(shop):
    asked = shop.signals.snapshot(["public.items"], where={"public.items": "no_such_column = 1"})
    with pytest.raises(SnapshotFailed, match="SQL_EXCEPTION") as failed:
        asked.wait()
    assert "condition" in failed.value.remedy
    with pytest.raises(SnapshotFailed, match="SQL_EXCEPTION"):
        shop.signals.blocking_snapshot(["public.items"], where={"public.items": "no_such_column = 1"}).wait()


def test_a_new_table_is_captured_and_its_rows_come_by_a_snapshot(shop, connect, records_of):
    shop.database.run("CREATE TABLE colours (id int PRIMARY KEY)", "INSERT INTO colours VALUES (1), (2), (3)")
    grown = dataclasses.replace(shop.source, tables=(*shop.source.tables, "public.colours"))
    prepare_source(shop.database.engine, grown, password=shop.database.password)
    assert apply_connector(connect, grown, source=shop.database.engine).changed
    asked = dataclasses.replace(shop.signals, source=grown).snapshot(["public.colours"])
    assert asked.wait() == (TableRead("public.colours", 3),)
    assert len(records_of(grown.topic("public.colours"), count=3)) == 3


def test_the_signal_table_is_made_once_and_emptied(shop):
    assert prepare_signals(shop.database.engine, shop.source) is False
    assert clear_signals(shop.database.engine, shop.source) > 0
    assert shop.database.rows("SELECT * FROM signals") == []


def test_an_older_signal_table_is_brought_up_to_date(captured):
    database = captured(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE TABLE signals (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))",
    )
    plain = database.prepared(database.source(tables=("public.items",)))
    source = dataclasses.replace(plain, signal_table="public.signals")
    with pytest.raises(SourceNotReady, match=r"may not INSERT into public\.signals"):
        source.check_source(database.engine)
    assert prepare_signals(database.engine, source) is True
    assert prepare_signals(database.engine, source) is False
    source.check_source(database.engine)
    lengths = "SELECT character_maximum_length FROM information_schema.columns WHERE table_name = 'signals'"
    assert set(database.rows(lengths)) == {(64,), (None,)}


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("CREATE VIEW signals AS SELECT 1 AS id", "it is no table"),
        ("CREATE TABLE signals (id int PRIMARY KEY, type text, data text)", "column id is integer"),
        ("CREATE TABLE signals (type text, id text PRIMARY KEY, data text)", "its columns are type, id, data"),
        ("CREATE TABLE signals (id text PRIMARY KEY, type text, data text, who text NOT NULL)", "column who must have"),
    ],
)
def test_a_table_that_is_something_else_is_refused(captured, statement, why):
    database = captured("CREATE TABLE items (id int PRIMARY KEY)", statement)
    source = database.source(tables=("public.items",), signal_table="public.signals")
    with pytest.raises(SourceNotReady, match=why):
        prepare_source(database.engine, source, password=database.password)


def test_the_command_reads_tables_again_and_tells_of_it(shop, cdc_of, settings, monkeypatch):
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", settings.kafka.bootstrap_servers)
    run = cdc_of(shop.database, source=shop.source)
    where = ("--where", "public.items=id = 5", "--table", "public.items")
    taken = run("snapshot", "take", "declared_here:source", *where, "--json")
    assert [json.loads(line) for line in taken.stdout.splitlines()] == [{"table": "public.items", "rows": 1}]
    assert run("snapshot", "take", "declared_here:source", *where, "--blocking").stdout == "public.items  1 rows read\n"
    told = [json.loads(line) for line in run("notifications", "declared_here:source", "--json").stdout.splitlines()]
    assert told[-1]["stage"] == "COMPLETED"
    assert {"Initial Snapshot", "Incremental Snapshot"} == {one["kind"] for one in told}
    assert "rows" in run("notifications", "declared_here:source").stdout
