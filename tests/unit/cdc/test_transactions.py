"""Where a batch may end so that it holds no transaction by half: the search against a model that knows every owner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.changes.change_records import Lookup, RecordReader
from cdc.changes.transactions import (
    WINDOW,
    Change,
    Commit,
    End,
    LogPlace,
    Partition,
    read_mark,
    read_place,
    whole_ends,
)
from cdc.errors import UndecodableChange
from tests.unit.cdc.avro_records import MARKER, framed, schema_of

PARTITIONS: list[Partition] = [("shop.public.a", 0), ("shop.public.a", 1), ("shop.public.b", 0)]


@dataclass(frozen=True)
class Sent:
    """One offset of the model: a change of a transaction, a row of a snapshot, or nothing (tombstone, Kafka's mark)."""

    place: LogPlace | None
    owner: int = 0  # a change's transaction, numbered from 1


@dataclass
class Model:
    """A log as connectors write it: transactions in the order of their commits, snapshots anywhere, several lives."""

    log: dict[Partition, list[Sent]] = field(default_factory=lambda: {p: [] for p in PARTITIONS})
    commits: list[Commit] = field(default_factory=lambda: [Commit()])
    epoch: int = 0
    lsn: int = 3
    named: int | None = None  # the commit that changes name, None after an initial snapshot
    looks: int = 0

    def begin_life(self, epoch: int, lsn: int) -> None:
        """From here on as after an initial snapshot, of another server or of the same."""
        self.epoch, self.lsn, self.named = epoch, lsn, None

    def row(self) -> Sent:
        return Sent(LogPlace(self.epoch, self.named or self.lsn, in_transaction=False))

    def change(self) -> Sent:
        """A change of the transaction that commits next."""
        return Sent(LogPlace(self.epoch, self.named or self.lsn + 1, in_transaction=True), len(self.commits))

    def commit(self, later: int) -> None:
        self.lsn += 1 + later
        self.named = self.lsn
        self.commits.append(Commit(self.epoch, self.lsn))

    def read(self, ranges: Mapping[Partition, tuple[int, int]]) -> Iterator[tuple[Partition, Change]]:
        self.looks += 1
        for partition, (low, high) in ranges.items():
            assert low < high
            for offset, sent in enumerate(self.log[partition][low:high], low):
                if sent.place is not None:
                    yield partition, (offset, lambda place=sent.place: place)

    def naive(self, partition: Partition, end: int, last: int) -> int:
        """Read on until a change of a later transaction."""
        return next((o for o, sent in enumerate(self.log[partition][:end]) if sent.place and sent.owner > last), end)


@st.composite
def models(draw: st.DrawFn) -> Model:
    model = Model()
    for _ in range(draw(st.integers(1, 12))):
        life = draw(st.sampled_from(["goes on", "goes on", "goes on", "read again", "another"]))
        if life != "goes on":
            another = life == "another"
            lsn = draw(st.integers(1, 60)) if another else model.lsn + draw(st.integers(1, 60))
            model.begin_life(model.epoch + another, lsn)
        for partition in draw(st.lists(st.sampled_from(PARTITIONS), max_size=8)):
            kind = draw(st.sampled_from(["change", "change", "change", "change", "row", "nothing"]))
            one = {"change": model.change, "row": model.row, "nothing": lambda: Sent(None)}[kind]()
            model.log[partition] += [one] * draw(st.sampled_from([1, 1, 1, 2, 90]))
        model.commit(draw(st.integers(1, 50)))
    return model


@given(model=models(), data=st.data())
def test_the_ends_found_hold_whole_transactions_and_all_of_them(model: Model, data: st.DataObject) -> None:
    last = data.draw(st.integers(0, len(model.commits) - 1), label="last ended")
    ends = {p: len(log) - data.draw(st.integers(0, 3)) for p, log in model.log.items()}
    ends = {p: max(end, model.naive(p, len(model.log[p]), last)) for p, end in ends.items()}
    starts = {p: data.draw(st.integers(0, model.naive(p, end, last)), label="start") for p, end in ends.items()}
    found = whole_ends(model.read, starts, ends, last=model.commits[last])
    assert found == {p: model.naive(p, end, last) for p, end in ends.items()}
    taken = {p: log[: found[p]] for p, log in model.log.items()}
    left = {p: log[found[p] :] for p, log in model.log.items()}
    assert all(sent.owner <= last for log in taken.values() for sent in log)
    assert all(sent.owner > last for log in left.values() for sent in log if sent.owner)


@given(model=models())
def test_a_log_without_an_ended_transaction_gives_what_snapshots_sent_before(model: Model) -> None:
    row = Sent(LogPlace(0, 3, in_transaction=False))
    initial = {p: [row] * 3 + log for p, log in model.log.items()}
    model.log = initial
    ends = {p: len(log) for p, log in initial.items()}
    found = whole_ends(model.read, dict.fromkeys(ends, 0), ends, last=Commit())
    assert all(found[p] >= 3 for p in found)
    assert not any(sent.owner for p, log in initial.items() for sent in log[: found[p]])


def test_another_life_follows_whatever_its_log_positions_are() -> None:
    model, partition = Model(), PARTITIONS[0]
    model.log[partition] = [model.row()] * 10
    model.begin_life(0, 900)
    model.log[partition] += [model.change()] * 100
    model.commit(later=5)
    model.begin_life(1, 20)
    model.log[partition] += [model.row()] * 10 + [model.change()] * 5
    model.commit(later=29)
    assert model.commits[-1] == Commit(1, 50)
    assert whole_ends(model.read, {partition: 0}, {partition: 125}, last=Commit(1, 50)) == {partition: 125}
    assert whole_ends(model.read, {partition: 0}, {partition: 125}, last=model.commits[1]) == {partition: 120}


def test_rows_that_a_blocking_snapshot_puts_into_a_transaction_do_not_hide_its_beginning() -> None:
    model, partition = Model(), PARTITIONS[0]
    model.commit(later=5)
    model.log[partition] = [model.change()] * 3 + [model.row()] * 200 + [model.change()] * 3
    assert whole_ends(model.read, {partition: 0}, {partition: 206}, last=model.commits[1]) == {partition: 0}


def transactions_of(model: Model, *sizes: int) -> None:
    for size in sizes:
        model.log[PARTITIONS[0]] += [model.change()] * size
        model.commit(later=10)


def test_the_number_of_looks_grows_with_the_logarithm() -> None:
    model = Model()
    transactions_of(model, 40_000, 60_000)
    assert whole_ends(model.read, {PARTITIONS[0]: 0}, {PARTITIONS[0]: 100_000}, last=model.commits[1]) == {
        PARTITIONS[0]: 40_000
    }
    assert model.looks <= 18


def test_an_end_within_the_tail_takes_one_window() -> None:
    model = Model()
    transactions_of(model, 100_000)
    ends = {PARTITIONS[0]: 100_000}
    assert whole_ends(model.read, {PARTITIONS[0]: 0}, ends, last=model.commits[1]) == ends
    assert model.looks <= WINDOW.bit_length() + 1


MARK = {
    "status": "END",
    "id": "3500:49518616",
    "event_count": 5,
    "data_collections": [
        {"data_collection": "public.a", "event_count": 4}, {"data_collection": "public.b", "event_count": 1},
    ],
    "ts_ms": 1795350784896,
}  # fmt: skip
BEGIN = {"status": "BEGIN", "id": "3500:49518000", "event_count": None, "data_collections": None, "ts_ms": 1}


def mark(value: bytes | None, *, schemas: Lookup | None = None) -> End | None:
    return read_mark(RecordReader("value", schemas), value, "t[0]@9")


@pytest.mark.parametrize("wrap", [lambda body: body, lambda body: {"schema": {"type": "struct"}, "payload": body}])
def test_an_end_is_read_with_and_without_its_schema_and_a_begin_is_none(wrap: Callable[[object], object]) -> None:
    counts = {"public.a": 4, "public.b": 1}
    assert mark(json.dumps(wrap(MARK)).encode()) == End(Commit(0, 49518616), counts)
    assert mark(json.dumps(wrap({**MARK, "factfold_epoch": "2"})).encode()) == End(Commit(2, 49518616), counts)
    assert mark(json.dumps(wrap(BEGIN)).encode()) is None


def test_marks_in_avro_are_read_by_their_schemas() -> None:
    value = framed(MARKER, {**MARK, "factfold_epoch": "2"})
    assert mark(value, schemas=schema_of) == End(Commit(2, 49518616), {"public.a": 4, "public.b": 1})
    with pytest.raises(UndecodableChange, match="the reader has no schemas"):
        mark(value)


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"7", b"{}", b'{"id": 7}', b"[" * 100_000])
def test_other_records_are_refused_with_their_place(value: bytes | None) -> None:
    with pytest.raises(UndecodableChange, match=r"t\[0\]@9"):
        mark(value)
    with pytest.raises(UndecodableChange, match=r"a\[0\]@9"):
        read_place(RecordReader("value", None), value or b"{}", "a[0]@9")
