"""Events out of a store and into another one, as JSON lines and as Parquet, on both databases."""

from __future__ import annotations

import json
import stat
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from eventstore import ANY, Aggregate, Metadata, NewEvent, event
from eventstore.backends.sql.transfer.files import Importer
from eventstore.errors import EventIdTaken, ImportConflict, InvalidExport, StoreUnavailable, StreamArchived
from eventstore.snapshots import AggregateSnapshot
from eventstore.topics import partition_of
from tests.ledger import Payment

pytestmark = pytest.mark.postgres_in_faults

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OWN = {"position", "order_xid"}


class Sale(Aggregate):
    @event
    class Made:
        sku: str
        price: Decimal
        at: datetime
        day: date
        image: bytes
        tags: list[str]
        buyer: uuid.UUID | None = None


def sale(sku):
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    return Sale.Made(sku=sku, price=Decimal("12.3400"), at=at, day=at.date(), image=b"\0\xff", tags=["a", "ü"])


@pytest.fixture
def source(opened):
    store = opened()
    store.declare_category("sale", partitions=7, topic="shop.sales")
    metadata = Metadata(correlation_id="c 'ü'", causation_id="d", traceparent=TRACE)
    for number in range(3):
        store.append(f"sale-{number}", [sale("x"), sale("y")], expected=ANY, metadata=metadata)
        store.append(f"payment-{number}", [Payment.Received(amount=number)], expected=ANY)
        store.append("sale-0", [sale("again")], expected=ANY)
    return store


def rows(store):
    events = store.tables.events
    query = select(events).order_by(events.c.order_xid, events.c.position)
    with store.engine.connect() as connection:
        found = [dict(row) for row in connection.execute(query).mappings()]
    return [{name: value for name, value in row.items() if name not in OWN} for row in found]


def edited(path, change):
    path.write_text("".join(change(path.read_text(encoding="utf-8").splitlines(keepends=True))), encoding="utf-8")
    return path


@pytest.mark.both_databases
@pytest.mark.parametrize("name", ["all.jsonl", "all.parquet"])
def test_what_is_imported_is_what_was_exported(source, opened, tmp_path, name):
    target = opened()
    report = source.export_file(tmp_path / name)
    assert (report.events, report.categories, report.schemas) == (12, 2, 2)
    assert target.import_file(tmp_path / name, topics=True).imported == 12
    assert rows(target) == rows(source)
    assert (target.categories(), target.schemas()) == (source.categories(), source.schemas())
    assert [e.data for e in target.read_all()] == [e.data for e in source.read_all()]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


@pytest.mark.both_databases
@pytest.mark.parametrize("name", ["all.jsonl", "all.parquet"])
def test_an_import_that_is_repeated_stores_what_is_missing(source, opened, tmp_path, name):
    target = opened()
    target.import_file(_exported(source, tmp_path / name), topics=True)
    source.append("sale-0", [sale("later")], expected=ANY)
    again = target.import_file(_exported(source, tmp_path / name), topics=True)
    assert (again.imported, again.present) == (1, 12)
    assert rows(target) == rows(source)


def test_the_streams_go_on_where_they_ended(source, opened, tmp_path):
    target = opened()
    target.import_file(_exported(source, tmp_path / "all.jsonl"), topics=True)
    assert target.append("sale-0", [sale("new")], expected=4).version == 5
    assert [e.version for e in target.read_all(category="sale") if e.stream == "sale-0"] == list(range(6))
    first = next(iter(source.read_stream("sale-0")))
    with pytest.raises(EventIdTaken):
        target.append("sale-9", [NewEvent(sale("x"), id=first.id)], expected=ANY)


def test_one_category_is_exported_with_its_own_schemas(source, opened, tmp_path):
    report = source.export_file(tmp_path / "payments.jsonl", category="payment")
    assert (report.events, report.categories, report.schemas) == (3, 1, 1)
    target = opened()
    target.import_file(tmp_path / "payments.jsonl", topics=True)
    assert [e.data["amount"] for e in target.read_all()] == [0, 1, 2]


def test_a_category_that_is_there_keeps_its_partitions(source, opened, tmp_path):
    target = opened()
    target.declare_category("sale", partitions=3)
    target.import_file(_exported(source, tmp_path / "all.jsonl"), topics=True)
    sales = [row for row in rows(target) if row["category"] == "sale"]
    assert {(row["topic"], row["partition"] == partition_of(row["stream"], 3)) for row in sales} == {
        ("shop.sale", True)
    }


@pytest.mark.both_databases
@pytest.mark.parametrize("name", ["all.jsonl", "all.parquet"])
def test_what_is_archived_is_archived_there_too_and_stays_readable(source, opened, tmp_path, name):
    for stream, head in (("sale-0", 4), ("payment-1", 0)):
        source.archive_stream(stream, expected=head)
    source.delete_stream("payment-1", expected=0)
    target = opened()
    assert target.import_file(_exported(source, tmp_path / name), topics=True).archived == 1
    assert list(target.archived_streams()) == ["sale-0"]
    assert _marks(target) == _marks(source)
    assert rows(target) == rows_exported(source)
    with pytest.raises(StreamArchived):
        target.append("sale-0", [sale("z")], expected=4)
    assert target.import_file(tmp_path / name, topics=True).archived == 0


def test_a_mark_is_made_where_the_stream_ends_as_it_did_there_and_goes_where_it_went_on(source, opened, tmp_path):
    target = opened()
    target.import_file(_exported(source, tmp_path / "first.jsonl"), topics=True)
    source.archive_stream("sale-0", expected=4)
    source.archive_stream("sale-1", expected=1)
    target.append("sale-1", [sale("here alone")], expected=1)
    report = target.import_file(_exported(source, tmp_path / "archived.jsonl"), topics=True)
    assert (report.imported, report.archived) == (0, 1)
    assert list(target.archived_streams()) == ["sale-0"]
    source.unarchive_stream("sale-0")
    source.append("sale-0", [sale("after all")], expected=4)
    assert target.import_file(_exported(source, tmp_path / "on.jsonl"), topics=True).imported == 1
    assert list(target.archived_streams()) == []
    assert target.append("sale-0", [sale("and here")], expected=5).version == 6


def test_a_snapshot_goes_where_a_mark_comes(source, opened, tmp_path):
    target = opened()
    target.import_file(_exported(source, tmp_path / "first.jsonl"), topics=True)
    target.save_snapshot(AggregateSnapshot("payment-0", 0, bytes(8)))
    source.archive_stream("payment-0", expected=0)
    target.import_file(_exported(source, tmp_path / "archived.jsonl"), topics=True)
    assert target.snapshot("payment-0") is None


def test_a_file_of_before_there_were_marks_is_read(source, opened, tmp_path):
    table = pq.read_table(_exported(source, tmp_path / "new.parquet"))
    pq.write_table(table.drop_columns(["archived"]), tmp_path / "old.parquet")
    target = opened()
    assert target.import_file(tmp_path / "old.parquet", topics=True).imported == 12


def _marks(store):
    with store.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(store.tables.archived_streams))]


def rows_exported(store):
    """Every event, and of a deleted stream the row that ends it."""
    found = rows(store)
    last = {row["stream"]: row["version"] for row in found}
    return [row for row in found if row["payload"] is not None or row["version"] == last[row["stream"]]]


@pytest.mark.parametrize("name", ["all.jsonl", "all.parquet"])
def test_an_export_is_its_owner_s_to_read_whatever_lay_there(opened, tmp_path, name):
    path, elsewhere = tmp_path / name, tmp_path / "elsewhere"
    elsewhere.write_text("")
    path.with_name(f"{name}.part").symlink_to(elsewhere)
    path.write_text("")
    path.chmod(0o644)
    opened().export_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert elsewhere.read_text() == ""


def test_an_empty_store_is_exported_too(opened, tmp_path):
    for name in ("none.jsonl", "none.parquet"):
        opened().export_file(tmp_path / name)
        assert opened().import_file(tmp_path / name, topics=True).imported == 0


def test_people_can_read_the_lines(source, tmp_path):
    text = _exported(source, tmp_path / "all.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["kind"] for line in lines[:5]] == ["export", "category", "category", "schema", "schema"]
    event = next(line for line in lines if line["kind"] == "event")
    assert (event["stream"], event["data"]["price"], event["data"]["tags"]) == ("sale-0", "12.3400", ["a", "ü"])
    assert lines[-1] == {"kind": "end", "events": 12}


def test_programs_can_read_the_table(source, tmp_path):
    table = pq.read_table(_exported(source, tmp_path / "all.parquet"))
    assert table.num_rows == 12
    assert json.loads(table["data"][0].as_py())["sku"] == "x"


def _exported(store, path):
    store.export_file(path)
    return path


def _changed(line, **values):
    def change(lines: list[str]) -> list[str]:
        lines[line] = json.dumps({**json.loads(lines[line]), **values}) + "\n"
        return lines

    return change


FIRST = 5  # of the events, behind the header, two categories and two schemas


BAD: list[tuple[Callable[[list[str]], list[str]], str, int | None]] = [
    (lambda lines: lines[:-1], "ends early", None),
    (lambda lines: lines[:-2] + lines[-1:], "12", 17),
    (lambda lines: lines[1:], "no export", 1),
    (lambda lines: [], "no export", 1),
    (lambda lines: [*lines[:7], "{nonsense\n", *lines[7:]], "no line of an export", 8),
    (lambda lines: [*lines[:7], "[1]\n", *lines[7:]], "no line of an export", 8),
    (lambda lines: [lines[0], *lines[FIRST:]], "not in the file's head", None),
    (lambda lines: [*lines[:3], *lines[FIRST:]], "not in the file's head", None),
    (_changed(0, format=2), "no export", 1),
    (_changed(1, partitions="many"), "no category", 2),
    (_changed(3, id=7), "is not what its id says", None),
    (_changed(FIRST, version=-1), "no version", 6),
    (_changed(FIRST, version=True), "no version", 6),
    (_changed(FIRST, stream="no category"), "has no dash", 6),
    (_changed(FIRST, id="x"), "no event", 6),
    (_changed(FIRST, id=None), "no event", 6),
    (_changed(FIRST, time="2026-01-01"), "no time with a zone", 6),
    (_changed(FIRST, archived="2026-01-01"), "no time with a zone", 6),
    (_changed(FIRST, archived=1), "no event", 6),
    (_changed(FIRST, payload="*"), "no event", 6),
    (_changed(FIRST, payload="AAAA"), "Confluent frame", None),
    (_changed(FIRST, type="sale.other"), "its schema is of sale.made", None),
    (_changed(FIRST, source=None), "source", 6),
    (_changed(FIRST, correlation_id="a\u0000b"), "cannot be printed", 6),
    (_changed(FIRST, kind="surprise"), "its kind is 'surprise'", 6),
]


def test_a_bad_file_is_refused_by_its_line_and_nothing_is_stored(source, opened, tmp_path):
    target, path = opened(), _exported(source, tmp_path / "all.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for change, said, line in BAD:
        path.write_text("".join(change(list(lines))), encoding="utf-8")
        with pytest.raises(InvalidExport, match=said) as refused:
            target.import_file(path, topics=True)
        assert refused.value.place is not None
        assert line is None or refused.value.place.endswith(f"line {line}")
        assert rows(target) == []


def test_a_file_that_is_no_export_is_refused(opened, tmp_path):
    target = opened()
    for content in (b"", b"nonsense", b"PAR1 nonsense PAR1"):
        (tmp_path / "all.parquet").write_bytes(content)
        with pytest.raises(InvalidExport, match="no Parquet"):
            target.import_file(tmp_path / "all.parquet", topics=True)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "all.parquet")
    for name, said in (("all.parquet", "no export"), ("none.jsonl", "no such file")):
        with pytest.raises(InvalidExport, match=said):
            target.import_file(tmp_path / name, topics=True)


GAPS: list[tuple[Callable[[list[str]], list[str]], str]] = [
    (_changed(FIRST, version=1), "two events sale-0@1"),
    (_changed(FIRST, version=99), "version 98 of stream"),
    (
        lambda lines: [*lines[:FIRST], *lines[FIRST + 1 : -1], '{"kind": "end", "events": 11}\n'],
        "version 0 of stream",
    ),
]


def test_a_file_whose_streams_have_gaps_or_repetitions_is_refused_whole(source, opened, tmp_path):
    target = opened()
    for change, said in GAPS:
        path = edited(_exported(source, tmp_path / "all.jsonl"), change)
        with pytest.raises(ImportConflict, match=said):
            target.import_file(path, topics=True)
        assert rows(target) == []
    path = edited(_exported(source, tmp_path / "all.jsonl"), _changed(FIRST, id=str(uuid.UUID(int=7))))
    assert target.import_file(path, topics=True).imported == 12


@pytest.mark.both_databases
def test_an_import_of_an_event_that_stands_elsewhere_or_another_stands_in_place_of_is_refused(source, opened, tmp_path):
    target = opened()
    target.append("sale-1", [sale("other")], expected=ANY)
    with pytest.raises(ImportConflict, match="'sale-1' has another event at version 0") as refused:
        target.import_file(_exported(source, tmp_path / "all.jsonl"), topics=True)
    assert refused.value.place == "sale-1@0"
    assert len(rows(target)) == 1
    target = opened()
    first = next(iter(source.read_stream("sale-1")))
    target.append("sale-7", [NewEvent(sale("x"), id=first.id)], expected=ANY)
    with pytest.raises(ImportConflict, match="stands elsewhere"):
        target.import_file(_exported(source, tmp_path / "all.jsonl"), topics=True)


@pytest.mark.both_databases
def test_a_conflict_or_a_bad_line_at_the_end_of_a_file_leaves_nothing(opened, tmp_path):
    source, target = opened(), opened()
    source.append("payment-1", [Payment.Received(amount=n) for n in range(6_000)], expected=ANY)
    source.append("payment-2", [Payment.Received(amount=1)], expected=ANY)
    target.append("payment-2", [Payment.Received(amount=2)], expected=ANY)
    with pytest.raises(ImportConflict, match="'payment-2' has another event at version 0"):
        target.import_file(_exported(source, tmp_path / "all.jsonl"))
    path = edited(_exported(source, tmp_path / "all.jsonl"), _changed(5_900, version=-1))
    with pytest.raises(InvalidExport, match="no version"):
        target.import_file(path)
    path = edited(_exported(source, tmp_path / "all.jsonl"), _changed(6_000, version=1))
    with pytest.raises(ImportConflict, match="the file has two events payment-1@1"):
        target.import_file(path)
    assert (target.head("payment-1"), target.head("payment-2")) == (None, 0)


@pytest.mark.both_databases
def test_an_import_that_breaks_off_leaves_whole_batches_and_goes_on_when_repeated(opened, tmp_path, monkeypatch):
    source, target = opened(), opened()
    source.append("payment-1", [Payment.Received(amount=n) for n in range(12_000)], expected=ANY)
    path, batches = _exported(source, tmp_path / "all.jsonl"), list[int]()
    insert = Importer._insert

    def cut_off(self: Importer, values: Any, batch: Any) -> None:
        batches.append(len(batch))
        if len(batches) == 3:
            raise StoreUnavailable("cut off", remedy="repeat")
        insert(self, values, batch)

    monkeypatch.setattr(Importer, "_insert", cut_off)
    with pytest.raises(StoreUnavailable):
        target.import_file(path)
    assert target.head("payment-1") == 9_999
    told: list[tuple[int, int]] = []
    again = target.import_file(path, on_progress=lambda done, total: told.append((done, total)))
    assert (again.imported, again.present) == (2_000, 10_000)
    assert [e.data["amount"] for e in target.read_stream("payment-1")] == list(range(12_000))
    assert told[-1][0] == told[-1][1]


def test_a_topic_is_taken_over_where_that_is_asked_for_only(source, opened, tmp_path):
    target, path = opened(), _exported(source, tmp_path / "all.jsonl")
    with pytest.raises(
        ImportConflict, match=r"'sale' of the file has the topic 'shop\.sales', and here .*'shop\.sale'"
    ) as no:
        target.import_file(path)
    assert "--with-topics" in no.value.remedy
    assert (rows(target), target.categories(), target.schemas()) == ([], [], [])
    target.declare_category("sale", partitions=7, topic="own.sales")
    assert target.import_file(path).imported == 12
    assert [one.topic for one in target.categories()] == ["shop.payment", "own.sales"]
