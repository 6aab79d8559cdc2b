"""What a connector says of a snapshot tells whether it goes on, has ended or has failed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from cdc.changes.change_records import RecordReader
from cdc.errors import SnapshotFailed, UndecodableChange
from cdc.source.notifications import AwaitedSnapshot, Notification, SnapshotKind, Stage, TableRead, read_notification
from tests.errors import raises
from tests.unit.cdc.avro_records import NOTIFICATION, framed, schema_of

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


def test_a_table_left_out_does_not_end_the_others_and_all_of_them_end_it() -> None:
    awaited = after([said(Stage.STARTED), said(Stage.ABORTED, tables=(B,))])
    assert not awaited.ended
    awaited.hear(scanned(A))
    awaited.hear(said(Stage.COMPLETED))
    with raises(SnapshotFailed, code="snapshot-aborted"):
        awaited.result("shop")
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
