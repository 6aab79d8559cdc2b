"""Notifications of a connector, decoded from records as Debezium 3.7 wrote them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cdc.errors import UndecodableChange
from cdc.source.notifications import Notification, SnapshotKind, Stage, decode_notification
from tests.unit.cdc.avro_records import NOTIFICATION, framed, schema_of

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
    assert decode_notification(json.dumps(body).encode(), place="n[0]@1") == WANTED


def test_a_notification_in_avro_is_read_by_its_schemas() -> None:
    value = framed(NOTIFICATION, SCANNED)
    assert decode_notification(value, place="n[0]@1", schemas=schema_of) == WANTED
    with pytest.raises(UndecodableChange, match="the reader has no schemas"):
        decode_notification(value, place="n[0]@1")


def test_progress_tells_table_and_chunks() -> None:
    told = {"current_collection_in_progress": "public.a", "chunk_index": "79", "total_chunks": "301"}
    body = {**SCANNED, "type": "IN_PROGRESS", "additional_data": told}
    found = decode_notification(json.dumps(body).encode(), place="n[0]@1")
    assert (found.stage, found.table, found.chunk, found.chunks) == (Stage.IN_PROGRESS, "public.a", 79, 301)


def test_words_that_are_new_are_kept_as_they_are() -> None:
    body = {**SCANNED, "type": "TELEPORTED", "aggregate_type": "Schema History", "additional_data": None}
    found = decode_notification(json.dumps(body).encode(), place="n[0]@1")
    assert (found.kind, found.stage, found.tables) == ("Schema History", "TELEPORTED", ())


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\xff", b"[]", b"7", b"{}", b'{"id": "1"}', json.dumps({**SCANNED, "timestamp": "x"}).encode(),
     json.dumps({**SCANNED, "additional_data": {"chunk_index": "many"}}).encode(), b"[" * 100_000],
)  # fmt: skip
def test_anything_else_is_refused_with_its_place(value: bytes | None) -> None:
    with pytest.raises(UndecodableChange) as refused:
        decode_notification(value, place="shop.notifications[0]@7")
    assert refused.value.place == "shop.notifications[0]@7"
