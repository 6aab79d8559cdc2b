"""Signals without a server: what is sent, what is refused before anything is sent, what silence is called."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from cdc import ApicurioAvro, JsonWithSchemas, grant_statements
from cdc.changes.change_records import RecordReader
from cdc.connect.status import ConnectorStatus, TaskStatus
from cdc.errors import (
    ConnectorTimeout,
    InvalidConnector,
    SnapshotFailed,
    UndecodableChange,
    UnknownConnector,
    UnsupportedEncoding,
)
from cdc.source.notifications import AwaitedSnapshot, Notification, SnapshotKind, Stage, TableRead, read_notification
from cdc.source.signal_table import signal_rights, signal_statements
from cdc.source.signals import Signalled, Signals
from eventstore.errors import InvalidIdentifier
from eventstore.settings import Settings
from tests.errors import raises
from tests.unit.cdc.avro_records import NOTIFICATION, framed, schema_of
from tests.unit.cdc.declared import postgres

SECRET = "sentinel-of-a-password"
SOURCE = postgres(
    name="shop_tables", password=SECRET, tables=("public.items", "public.parts"), signal_table="public.signals",
    notifications_topic="shop.notifications", allow_literal_secrets=True,
)  # fmt: skip
SETTINGS = Settings.for_broker("localhost:1")


class Database:
    """Takes the statements an engine would."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    @contextmanager
    def begin(self) -> Iterator[Database]:
        yield self

    def exec_driver_sql(self, statement: str, values: Any) -> None:
        self.sent.append((statement, values))


class Said:
    """A reader to whom the connector says these things, one a look, and then nothing."""

    def __init__(self, *stages: Stage, tables: Sequence[tuple[str, ...]] = ()) -> None:
        self._stages = itertools.zip_longest(stages, tables, fillvalue=())

    def __enter__(self) -> Said:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def poll(self, timeout: float) -> list[Notification]:
        noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
        one = [
            Notification(
                id="mine", connector="shop", kind=SnapshotKind.INCREMENTAL, stage=stage, time=noon, tables=tables
            )
            for stage, tables in itertools.islice(self._stages, 1)
        ]
        return one

    def close(self) -> None:
        """Nothing is open."""


class Worker:
    """A Connect client that knows one state of the connector."""

    def __init__(self, state: str, **settings: str) -> None:
        self.state, self.settings = state, settings

    def status(self, name: str) -> ConnectorStatus:
        if self.state == "GONE":
            raise UnknownConnector("no such connector", remedy="apply it", status=404)
        return ConnectorStatus(name, self.state, "w", (TaskStatus(0, self.state, "w"),))

    def config(self, name: str) -> dict[str, str]:
        return SOURCE.config() | self.settings


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def signals(database: Database, monkeypatch: pytest.MonkeyPatch) -> Signals:
    monkeypatch.setattr(Signals, "listen", lambda self: Said())
    return Signals(database, SOURCE, SETTINGS)  # type: ignore[arg-type]


def sent(database: Database) -> tuple[str, dict[str, Any]]:
    ((statement, (signal, kind, data)),) = database.sent
    assert statement == 'INSERT INTO "public"."signals" (id, type, data) VALUES (%s, %s, %s)'
    assert len(signal) == 36
    return kind, json.loads(data)


def test_an_incremental_snapshot_names_its_tables_and_conditions(signals: Signals, database: Database) -> None:
    signals.snapshot(["public.items", "public.items"], where={"public.items": "id > 7"}, surrogate_key="number")
    condition = {"data-collection": "public.items", "filter": "id > 7"}
    assert sent(database) == (
        "execute-snapshot",
        {
            "type": "incremental",
            "data-collections": ["public.items"],
            "additional-conditions": [condition],
            "surrogate-key": "number",
        },
    )


def test_a_blocking_snapshot_gets_its_condition_as_a_query(signals: Signals, database: Database) -> None:
    signals.blocking_snapshot(["public.items"], where={"public.items": "id > 7 OR id < 3"})
    _, data = sent(database)
    assert data["type"] == "blocking"
    assert [one["filter"] for one in data["additional-conditions"]] == [
        'SELECT * FROM "public"."items" WHERE (id > 7 OR id < 3)'
    ]


@pytest.mark.parametrize(
    "table", ["public.other", "items", "", 'public.items"; DROP TABLE items --', "public..items", "public.it*", "ä.b"]
)
def test_a_table_that_is_not_captured_is_refused_and_nothing_is_sent(signals, database, table):
    for ask in (signals.snapshot, signals.blocking_snapshot, signals.stop):
        with pytest.raises((InvalidConnector, InvalidIdentifier)):
            ask([table])
    with pytest.raises((InvalidConnector, InvalidIdentifier)):
        signals.snapshot(["public.items"], where={table: "true"})
    with pytest.raises(InvalidIdentifier):
        signals.snapshot(["public.items"], surrogate_key=f"{table} ")
    assert database.sent == []


def test_a_source_without_signals_is_refused(database: Database) -> None:
    for missing in ("signal_table", "notifications_topic"):
        with pytest.raises(InvalidConnector, match=f"declares no {missing}"):
            Signals(database, dataclasses.replace(SOURCE, **{missing: None}), SETTINGS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("worker", "cause", "remedy"),
    [
        (None, r"in 0\.01 s$", "far behind"),
        (Worker("PAUSED"), "it stands PAUSED", "factfold cdc resume"),
        (Worker("GONE"), "knows no such connector", "factfold cdc apply"),
        (Worker("RUNNING", **{"signal.data.collection": "public.x"}), "another signal.data.collection", "apply"),
        (Worker("RUNNING"), r"in 0\.01 s$", "far behind"),
    ],
)
def test_silence_is_told_with_its_cause(database: Database, worker: Any, cause: str, remedy: str) -> None:
    signals = Signals(database, SOURCE, SETTINGS, worker)  # type: ignore[arg-type]
    awaited = AwaitedSnapshot("mine", SnapshotKind.INCREMENTAL, ("public.items",))
    with raises(ConnectorTimeout, code="signal-not-answered") as silent:
        Signalled("mine", signals, Said(), awaited).wait(answer_within=0.01)  # type: ignore[arg-type]
    assert re.search(cause, silent.value.message)
    assert remedy in silent.value.remedy
    assert SECRET not in str(silent.value)


def test_a_snapshot_that_goes_on_is_told_with_how_far_it_is(signals: Signals) -> None:
    awaited = AwaitedSnapshot("mine", SnapshotKind.INCREMENTAL, ("public.items",))
    said = Said(Stage.STARTED)
    with raises(ConnectorTimeout, code="snapshot-unfinished", match="0 of 1 tables read"):
        Signalled("mine", signals, said, awaited).wait(timeout=0.05)  # type: ignore[arg-type]


def test_a_stop_of_some_tables_is_answered_by_what_names_them(database, monkeypatch):
    signals = Signals(database, SOURCE, SETTINGS)  # type: ignore[arg-type]
    others, ours = ("public.parts",), ("public.parts", "public.items")
    monkeypatch.setattr(Signals, "listen", lambda self: Said(Stage.ABORTED, Stage.ABORTED, tables=[others, ours]))
    assert signals.stop(["public.items"]).tables == ours
    monkeypatch.setattr(Signals, "listen", lambda self: Said(Stage.ABORTED, tables=[others]))
    with raises(ConnectorTimeout, code="signal-not-answered"):
        signals.stop(["public.items"], timeout=0.05)


def test_answers_in_avro_need_their_schemas_before_anything_is_sent(database: Database) -> None:
    avro = dataclasses.replace(SOURCE, encoding=ApicurioAvro(registry_url="http://registry:8080/apis/registry/v3"))
    with pytest.raises(UnsupportedEncoding, match="notifications") as refused:
        Signals(database, avro, SETTINGS)  # type: ignore[arg-type]
    assert "schemas=" in refused.value.remedy
    Signals(database, avro, SETTINGS, schemas=lambda schema_id: pytest.fail("asked"))  # type: ignore[arg-type]
    Signals(database, dataclasses.replace(SOURCE, encoding=JsonWithSchemas()), SETTINGS)  # type: ignore[arg-type]
    assert database.sent == []


def test_what_holds_a_password_does_not_show_it(signals: Signals) -> None:
    assert SECRET not in repr(signals)


def test_the_sql_of_a_source_has_its_signal_table() -> None:
    assert list(signal_statements(SOURCE)) == [
        'CREATE TABLE "public"."signals" ("id" varchar(64) NOT NULL, "type" varchar(64) NOT NULL, "data" text NOT NULL,'
        ' PRIMARY KEY ("id"))'
    ]
    assert list(signal_rights(SOURCE)) == ['GRANT INSERT ON TABLE "public"."signals" TO "shop_cdc"']
    statements = grant_statements(SOURCE)
    assert {*signal_statements(SOURCE), *signal_rights(SOURCE)} < set(statements)
    assert statements.index(next(signal_statements(SOURCE))) < statements.index(next(signal_rights(SOURCE)))
    plain = dataclasses.replace(SOURCE, signal_table=None)
    assert not [statement for statement in grant_statements(plain) if "signals" in statement]


# ---- Notifications of a connector, and snapshots that were asked for, by what is heard from Debezium 3.7


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
A, B = "public.a", "public.b"


def said(stage: Stage, id: str = "mine", kind: SnapshotKind = SnapshotKind.INCREMENTAL, **more: object) -> Notification:
    return Notification(id=id, connector="shop", kind=kind, stage=stage, time=NOON, **more)  # type: ignore[arg-type]


def scanned(table: str, *, rows: int = 3, status: str = "SUCCEEDED", **more: object) -> Notification:
    return said(Stage.TABLE_SCAN_COMPLETED, table=table, rows=rows, status=status, **more)  # type: ignore[arg-type]


def after(
    heard: Iterable[Notification], *, tables: tuple[str, ...] = (A, B), kind: SnapshotKind = SnapshotKind.INCREMENTAL
) -> AwaitedSnapshot:
    awaited = AwaitedSnapshot("mine", kind, tables)
    for one in heard:
        awaited.hear(one)
    return awaited


def test_a_snapshot_ends_when_the_connector_says_so_and_tells_the_rows_of_each_table() -> None:
    heard = [said(Stage.STARTED), scanned(A, rows=7), scanned(B, rows=0, status="EMPTY")]
    awaited = after(heard)
    assert (awaited.taken, awaited.ended) == (True, False)
    awaited.hear(said(Stage.COMPLETED))
    assert awaited.ended
    assert awaited.result("shop") == (TableRead(A, 7), TableRead(B, 0))


def test_what_other_snapshots_say_before_ours_begins_is_not_ours() -> None:
    others = [said(Stage.STARTED, id="other"), scanned(A, id="other"), said(Stage.COMPLETED, id="other")]
    assert not after(others).taken
    assert not after([said(Stage.STARTED, kind=SnapshotKind.INITIAL)]).taken


def test_a_later_signal_takes_the_name_over_and_the_end_of_all_is_the_end_of_ours() -> None:
    heard = [said(Stage.STARTED), scanned(A), scanned(B, id="later"), said(Stage.COMPLETED, id="later")]
    assert after(heard).result("shop") == (TableRead(A, 3), TableRead(B, 3))


def test_a_table_that_the_connector_does_not_capture_fails_though_the_snapshot_completes() -> None:
    heard = [said(Stage.STARTED), scanned(A, status="UNKNOWN_SCHEMA"), scanned(B), said(Stage.COMPLETED)]
    with raises(SnapshotFailed, code="snapshot-failed", match=r"public\.a UNKNOWN_SCHEMA.*\n.*apply") as failed:
        after(heard).result("shop")
    assert failed.value.tables == {A: "UNKNOWN_SCHEMA"}


@pytest.mark.parametrize("status", ["SQL_EXCEPTION", "NO_PRIMARY_KEY", "SOMETHING_NEW"])
def test_each_way_to_fail_has_a_remedy(status: str) -> None:
    with pytest.raises(SnapshotFailed) as failed:
        after([said(Stage.STARTED), scanned(A, status=status), said(Stage.COMPLETED)], tables=(A,)).result("shop")
    assert failed.value.remedy
    assert status in failed.value.message


def test_a_stopped_snapshot_says_completed_and_is_aborted_all_the_same() -> None:
    stopped = [said(Stage.STARTED), scanned(A), said(Stage.COMPLETED), said(Stage.ABORTED, id="random", tables=(B,))]
    with raises(SnapshotFailed, code="snapshot-aborted", match=r"without 1 of 2 tables: public\.b STOPPED"):
        after(stopped).result("shop")


def test_a_table_left_out_does_not_end_the_others() -> None:
    awaited = after([said(Stage.STARTED), said(Stage.ABORTED, tables=(B,))])
    assert not awaited.ended
    awaited.hear(scanned(A))
    awaited.hear(said(Stage.COMPLETED))
    with raises(SnapshotFailed, code="snapshot-aborted"):
        awaited.result("shop")


def test_all_tables_left_out_end_it() -> None:
    assert after([said(Stage.STARTED), said(Stage.ABORTED, tables=(A, B))]).ended


def test_a_blocking_snapshot_goes_by_the_first_that_starts_and_not_by_a_restart() -> None:
    def blocking(stage: Stage, **more: object) -> Notification:
        return said(stage, id="random", kind=SnapshotKind.INITIAL, **more)

    skipped, started = blocking(Stage.SKIPPED), blocking(Stage.STARTED)
    assert not after([skipped], kind=SnapshotKind.INITIAL).taken
    scan = blocking(Stage.TABLE_SCAN_COMPLETED, table=A, rows=2, status="SUCCEEDED")
    end = blocking(Stage.COMPLETED)
    heard = [skipped, started, blocking(Stage.RESOLVED, tables=(A,)), scan, end]
    assert after(heard, tables=(A,), kind=SnapshotKind.INITIAL).result("shop") == (TableRead(A, 2),)
    with pytest.raises(SnapshotFailed, match=r"public\.b UNKNOWN_SCHEMA"):
        after(heard, tables=(A, B), kind=SnapshotKind.INITIAL).result("shop")


def test_how_far_it_is_fits_one_phrase() -> None:
    heard = [said(Stage.STARTED), scanned(A), said(Stage.IN_PROGRESS, table=B, chunk=2, chunks=9)]
    assert after(heard).summary() == "1 of 2 tables read, public.b, chunk 2 of 9"


SCANNED = {
    "id": "03cb0742",
    "type": "TABLE_SCAN_COMPLETED",
    "aggregate_type": "Incremental Snapshot",
    "additional_data": {
        "scanned_collection": "public.b", "connector_name": "shop", "total_rows_scanned": "4", "total_rows": "4",
        "data_collections": "public.b,public.c", "status": "SUCCEEDED",
    },
    "timestamp": 1795349211365,
}  # fmt: skip
WANTED = Notification(
    id="03cb0742",
    connector="shop",
    kind=SnapshotKind.INCREMENTAL,
    stage=Stage.TABLE_SCAN_COMPLETED,
    time=datetime(2026, 11, 22, 12, 6, 51, 365000, UTC),
    tables=("public.b", "public.c"),
    table="public.b",
    status="SUCCEEDED",
    rows=4,
)


@pytest.mark.parametrize("body", [SCANNED, {"schema": {"type": "struct"}, "payload": SCANNED}], ids=["plain", "schema"])
def test_a_notification_is_read_with_and_without_its_schema(body: object) -> None:
    assert read_notification(RecordReader("value", None), json.dumps(body).encode(), "n[0]@1") == WANTED


def test_a_notification_in_avro_is_read_by_its_schemas() -> None:
    value = framed(NOTIFICATION, SCANNED)
    assert read_notification(RecordReader("value", schema_of), value, "n[0]@1") == WANTED
    with pytest.raises(UndecodableChange, match="the reader has no schemas"):
        read_notification(RecordReader("value", None), value, "n[0]@1")


def test_progress_tells_table_and_chunks() -> None:
    told = {"current_collection_in_progress": "public.a", "chunk_index": "79", "total_chunks": "301"}
    body = {**SCANNED, "type": "IN_PROGRESS", "additional_data": told}
    found = read_notification(RecordReader("value", None), json.dumps(body).encode(), "n[0]@1")
    assert (found.stage, found.table, found.chunk, found.chunks) == (Stage.IN_PROGRESS, "public.a", 79, 301)


def test_words_that_are_new_are_kept_as_they_are() -> None:
    body = {**SCANNED, "type": "TELEPORTED", "aggregate_type": "Schema History", "additional_data": None}
    found = read_notification(RecordReader("value", None), json.dumps(body).encode(), "n[0]@1")
    assert (found.kind, found.stage, found.tables) == ("Schema History", "TELEPORTED", ())


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\xff", b"[]", b"7", b"{}", b'{"id": "1"}', json.dumps({**SCANNED, "timestamp": "x"}).encode(),
     json.dumps({**SCANNED, "additional_data": {"chunk_index": "many"}}).encode(), b"[" * 100_000],
)  # fmt: skip
def test_anything_else_is_refused_with_its_place(value: bytes | None) -> None:
    with pytest.raises(UndecodableChange) as refused:
        read_notification(RecordReader("value", None), value, "shop.notifications[0]@7")
    assert refused.value.place == "shop.notifications[0]@7"
