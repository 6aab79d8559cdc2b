"""Where a batch may end so that it holds no transaction by half: the search against a model that knows every owner."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import UndecodableChange
from cdc.transactions import (
    WINDOW,
    LogPlace,
    Partition,
    TransactionMarker,
    TransactionStatus,
    decode_marker,
    decode_place,
    whole_ends,
)

PARTITIONS: list[Partition] = [("shop.public.a", 0), ("shop.public.a", 1), ("shop.public.b", 0)]


@dataclass(frozen=True)
class Sent:
    """One offset of the model: a change of a transaction, a row of a snapshot, or nothing (tombstone, Kafka's mark)."""

    owner: int  # the transaction's number from 1; for the rest, the last one before it
    change: bool
    valued: bool = True


@dataclass
class Model:
    """A log as one connector writes it, in the order of the commits."""

    log: dict[Partition, list[Sent]] = field(default_factory=lambda: {p: [] for p in PARTITIONS})
    commits: list[int] = field(default_factory=lambda: [0])
    looks: int = 0

    def place(self, sent: Sent) -> LogPlace:
        before = sent.owner - 1 if sent.change else sent.owner
        return LogPlace(self.commits[before], sent.change)

    def first(self, ranges: Mapping[Partition, tuple[int, int]]) -> dict[Partition, tuple[int, LogPlace] | None]:
        self.looks += 1
        found: dict[Partition, tuple[int, LogPlace] | None] = {}
        for partition, (low, high) in ranges.items():
            assert low < high
            within = ((o, s) for o, s in enumerate(self.log[partition][low:high], low) if s.valued)
            found[partition] = next(((offset, self.place(sent)) for offset, sent in within), None)
        return found

    def naive(self, partition: Partition, end: int, last: int) -> int:
        """Read on until a change of a later transaction, or a row that was sent after one had begun."""
        for offset, sent in enumerate(self.log[partition][:end]):
            if sent.valued and sent.owner > last:
                return offset
        return end


@st.composite
def models(draw: st.DrawFn) -> Model:
    model = Model()
    for number in range(1, draw(st.integers(1, 12)) + 1):
        model.commits.append(model.commits[-1] + draw(st.integers(1, 50)))
        for partition in draw(st.lists(st.sampled_from(PARTITIONS), max_size=8)):
            copies = draw(st.sampled_from([1, 1, 1, 90]))
            model.log[partition] += [Sent(number, change=True)] * copies
            model.log[partition] += [Sent(number, change=True, valued=False)] * draw(st.integers(0, 2))
        for partition in draw(st.lists(st.sampled_from(PARTITIONS), max_size=3)):
            model.log[partition] += [Sent(number, change=False)] * draw(st.integers(1, 3))
    return model


@given(model=models(), data=st.data())
def test_the_ends_found_hold_whole_transactions_and_all_of_them(model: Model, data: st.DataObject) -> None:
    last = data.draw(st.integers(0, len(model.commits) - 1), label="last ended")
    ends = {p: len(log) - data.draw(st.integers(0, 3)) for p, log in model.log.items()}
    ends = {p: max(end, model.naive(p, len(model.log[p]), last)) for p, end in ends.items()}
    starts = {p: data.draw(st.integers(0, model.naive(p, end, last)), label="start") for p, end in ends.items()}
    found = whole_ends(model, starts, ends, last=model.commits[last])
    assert found == {p: model.naive(p, end, last) for p, end in ends.items()}
    taken = {p: log[: found[p]] for p, log in model.log.items()}
    left = {p: log[found[p] :] for p, log in model.log.items()}
    assert all(sent.owner <= last for log in taken.values() for sent in log if sent.change)
    assert all(sent.owner > last for log in left.values() for sent in log if sent.change and sent.valued)


@given(model=models())
def test_a_log_without_an_ended_transaction_gives_what_snapshots_sent_before(model: Model) -> None:
    initial = {p: [Sent(0, change=False)] * 3 + log for p, log in model.log.items()}
    model.log = initial
    ends = {p: len(log) for p, log in initial.items()}
    found = whole_ends(model, dict.fromkeys(ends, 0), ends, last=0)
    assert all(found[p] >= 3 for p in found)
    assert not any(sent.change for p, log in initial.items() for sent in log[: found[p]] if sent.valued)


def test_the_number_of_looks_grows_with_the_logarithm() -> None:
    model = Model(commits=[0, 10, 20])
    model.log[PARTITIONS[0]] = [Sent(1, change=True)] * 40_000 + [Sent(2, change=True)] * 60_000
    ends = {PARTITIONS[0]: 100_000}
    assert whole_ends(model, {PARTITIONS[0]: 0}, ends, last=10) == {PARTITIONS[0]: 40_000}
    assert model.looks <= 18


def test_an_end_within_the_tail_takes_one_window() -> None:
    model = Model(commits=[0, 10])
    model.log[PARTITIONS[0]] = [Sent(1, change=True)] * 100_000
    assert whole_ends(model, {PARTITIONS[0]: 0}, {PARTITIONS[0]: 100_000}, last=10) == {PARTITIONS[0]: 100_000}
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


@pytest.mark.parametrize("wrap", [lambda body: body, lambda body: {"schema": {}, "payload": body}])
def test_marks_are_read_with_and_without_their_schema(wrap: object) -> None:
    def read(body: object) -> TransactionMarker:
        return decode_marker(json.dumps(wrap(body)).encode(), place="t[0]@1")  # type: ignore[operator]

    assert read(MARK) == TransactionMarker(TransactionStatus.END, "3500", 49518616, {"public.a": 4, "public.b": 1})
    assert read(MARK).ends
    assert read(BEGIN) == TransactionMarker(TransactionStatus.BEGIN, "3500", 49518000)
    assert not read(BEGIN).ends


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"snapshot": "true", "sequence": '[null,"29099944"]'}, LogPlace(0, False)),
        ({"snapshot": "incremental", "sequence": '["29101456","29101456"]'}, LogPlace(29101456, False)),
        ({"snapshot": "false", "sequence": '["29103056","29103312"]'}, LogPlace(29103056, True)),
        ({"sequence": '[null,"7"]'}, LogPlace(0, True)),
    ],
)
def test_a_change_tells_its_place_among_the_commits(source: object, place: LogPlace) -> None:
    assert decode_place(json.dumps({"source": source, "op": "c"}).encode(), place="a[0]@1") == place


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"7", b"{}", b'{"id": 7}', b"[" * 100_000])
def test_other_records_are_refused_with_their_place(value: bytes | None) -> None:
    with pytest.raises(UndecodableChange, match=r"t\[0\]@9"):
        decode_marker(value, place="t[0]@9")
    with pytest.raises(UndecodableChange, match=r"a\[0\]@9"):
        decode_place(value or b"{}", place="a[0]@9")
