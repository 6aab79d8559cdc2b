"""Where a batch may end so that it holds no transaction by half: the search against a model that knows every owner."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.changes.change_records import RecordReader
from cdc.changes.transactions import (
    WINDOW,
    Commit,
    LogPlace,
    Partition,
    SourceTransactions,
    Tells,
    TransactionMarker,
    TransactionStatus,
    decode_marker,
    read_place,
    whole_ends,
)
from cdc.errors import UndecodableChange
from eventstore.errors import TopicMismatch
from eventstore.settings import Settings
from tests.unit.cdc.avro_records import MARKER, framed, schema_of
from tests.unit.cdc.marked_topics import MARKS, PREFIX, TOPICS, Connector, Kafka, Log, Offsets

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

    def first(
        self, ranges: Mapping[Partition, tuple[int, int]], tells: Tells
    ) -> dict[Partition, tuple[int, LogPlace] | None]:
        self.looks += 1
        found: dict[Partition, tuple[int, LogPlace] | None] = {}
        for partition, (low, high) in ranges.items():
            assert low < high
            within = ((o, s.place) for o, s in enumerate(self.log[partition][low:high], low) if s.place is not None)
            found[partition] = next((one for one in within if tells(one[1])), None)
        return found

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
    found = whole_ends(model, starts, ends, last=model.commits[last])
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
    found = whole_ends(model, dict.fromkeys(ends, 0), ends, last=Commit())
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
    assert whole_ends(model, {partition: 0}, {partition: 125}, last=Commit(1, 50)) == {partition: 125}
    assert whole_ends(model, {partition: 0}, {partition: 125}, last=model.commits[1]) == {partition: 120}


def test_rows_that_a_blocking_snapshot_puts_into_a_transaction_do_not_hide_its_beginning() -> None:
    model, partition = Model(), PARTITIONS[0]
    model.commit(later=5)
    model.log[partition] = [model.change()] * 3 + [model.row()] * 200 + [model.change()] * 3
    assert whole_ends(model, {partition: 0}, {partition: 206}, last=model.commits[1]) == {partition: 0}


def transactions_of(model: Model, *sizes: int) -> None:
    for size in sizes:
        model.log[PARTITIONS[0]] += [model.change()] * size
        model.commit(later=10)


def test_the_number_of_looks_grows_with_the_logarithm() -> None:
    model = Model()
    transactions_of(model, 40_000, 60_000)
    assert whole_ends(model, {PARTITIONS[0]: 0}, {PARTITIONS[0]: 100_000}, last=model.commits[1]) == {
        PARTITIONS[0]: 40_000
    }
    assert model.looks <= 18


def test_an_end_within_the_tail_takes_one_window() -> None:
    model = Model()
    transactions_of(model, 100_000)
    ends = {PARTITIONS[0]: 100_000}
    assert whole_ends(model, {PARTITIONS[0]: 0}, ends, last=model.commits[1]) == ends
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


@pytest.mark.parametrize("wrap", [lambda body: body, lambda body: {"schema": {"type": "struct"}, "payload": body}])
def test_marks_are_read_with_and_without_their_schema(wrap: object) -> None:
    def read(body: object) -> TransactionMarker:
        return decode_marker(json.dumps(wrap(body)).encode(), place="t[0]@1")  # type: ignore[operator]

    assert read(MARK) == TransactionMarker(TransactionStatus.END, "3500", 49518616, {"public.a": 4, "public.b": 1})
    assert read(MARK).ends
    assert read(BEGIN) == TransactionMarker(TransactionStatus.BEGIN, "3500", 49518000)
    assert not read(BEGIN).ends


def test_marks_in_avro_are_read_by_their_schemas() -> None:
    value = framed(MARKER, {**MARK, "factfold_epoch": "2"})
    wanted = TransactionMarker(TransactionStatus.END, "3500", 49518616, {"public.a": 4, "public.b": 1}, 2)
    assert decode_marker(value, place="t[0]@1", schemas=schema_of) == wanted
    with pytest.raises(UndecodableChange, match="the reader has no schemas"):
        decode_marker(value, place="t[0]@1")


def test_a_mark_names_the_life_of_its_source() -> None:
    marker = decode_marker(json.dumps({**MARK, "factfold_epoch": "2"}).encode(), place="t[0]@1")
    assert marker.commit == Commit(2, 49518616)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"snapshot": "true", "sequence": '[null,"29099944"]'}, LogPlace(2, 29099944, False)),
        ({"snapshot": "incremental", "sequence": '["29101456","29101456"]'}, LogPlace(2, 29101456, False)),
        ({"snapshot": "false", "sequence": '["29103056","29103312"]'}, LogPlace(2, 29103056, True)),
        ({"sequence": '[null,"7"]'}, LogPlace(2, 7, True)),
    ],
)
def test_a_change_tells_its_place_among_the_commits(source: object, place: LogPlace) -> None:
    event = {"source": source, "op": "c", "factfold_epoch": "2"}
    assert read_place(RecordReader("value", None), json.dumps(event).encode(), "a[0]@1") == place
    del event["factfold_epoch"]
    assert read_place(RecordReader("value", None), json.dumps(event).encode(), "a[0]@1") == place._replace(epoch=0)


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"7", b"{}", b'{"id": 7}', b"[" * 100_000])
def test_other_records_are_refused_with_their_place(value: bytes | None) -> None:
    with pytest.raises(UndecodableChange, match=r"t\[0\]@9"):
        decode_marker(value, place="t[0]@9")
    with pytest.raises(UndecodableChange, match=r"a\[0\]@9"):
        read_place(RecordReader("value", None), value or b"{}", "a[0]@9")


# ---- Batches of whole transactions where marks are gone, missing or of another life: topics in memory, no server


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    return Kafka(monkeypatch)


@pytest.fixture
def connector(kafka: Kafka) -> Connector:
    return Connector(kafka)


def opened() -> SourceTransactions:
    return SourceTransactions(Settings.for_broker("localhost:1"), PREFIX, TOPICS)


def ends_of(kafka: Kafka) -> Offsets:
    return kafka.end_offsets(TOPICS)


def latest(kafka: Kafka) -> Offsets:
    return opened().latest(kafka.beginning_offsets(TOPICS))


def batches(kafka: Kafka, start: Offsets, *, most: int) -> Iterator[set[int]]:
    """The numbers of the transactions in each batch, until nothing more comes; every batch begins where one ended."""
    boundaries = opened()
    while (cut := boundaries.whole(start, ends_of(kafka), most=most)) != start:
        yield numbers(kafka, start, cut)
        start = cut


def numbers(kafka: Kafka, start: Offsets, end: Offsets) -> set[int]:
    kafka.seek(start)
    events = [json.loads(record.value) for record in kafka.read_up_to(end) if record.value]
    return {event["number"] for event in events if event["source"]["snapshot"] == "false"}


def test_what_was_sent_before_all_marks_expired_is_read(kafka: Kafka, connector: Connector) -> None:
    connector.snapshot(5)
    for _ in range(10):
        connector.commit(a=60, b=40)
    kafka.topics[MARKS][0].expire()
    assert latest(kafka) == ends_of(kafka)
    assert list(batches(kafka, kafka.beginning_offsets(TOPICS), most=100)) == [set(), set(range(1, 11))]


def test_an_open_transaction_is_left_though_all_older_marks_expired(kafka: Kafka, connector: Connector) -> None:
    connector.commit(a=3, b=3)
    kafka.topics[MARKS][0].expire()
    before = ends_of(kafka)
    connector.begin(a=2, b=2)
    assert all(latest(kafka)[t][p] <= end for t, parts in before.items() for p, end in parts.items())
    assert list(batches(kafka, before, most=100)) == []
    connector.end(a=2, b=2)
    assert latest(kafka) == ends_of(kafka)
    assert list(batches(kafka, before, most=100)) == [{2}]


def test_marks_that_expire_while_a_reader_rests_are_covered_by_the_next(kafka: Kafka, connector: Connector) -> None:
    connector.commit(a=2, b=2)
    start, boundaries = kafka.beginning_offsets(TOPICS), opened()
    start = boundaries.whole(start, ends_of(kafka), most=100)
    connector.commit(a=2, b=2)
    kafka.topics[MARKS][0].expire()
    connector.commit(a=1, b=1)
    assert boundaries.whole(start, ends_of(kafka), most=100) == ends_of(kafka)


def test_a_topic_of_marks_that_never_had_one_says_nothing_of_the_changes(kafka: Kafka, connector: Connector) -> None:
    connector.marks = False
    connector.snapshot(4)
    connector.commit(a=6, b=6)
    kafka.topics[MARKS] = [Log()]
    assert latest(kafka) == {topic: {0: 2, 1: 2} for topic in TOPICS}


@pytest.mark.parametrize("epoch", [1, 0], ids=["another life", "the same"])
def test_a_repeated_initial_snapshot_in_a_backlog_is_read_over(kafka: Kafka, connector: Connector, epoch: int) -> None:
    connector.snapshot(10)
    connector.lsn = 900
    for _ in range(5):
        connector.commit(a=20, b=20)
    connector.begin_life(epoch=epoch, lsn=20 if epoch else 2_000)
    connector.snapshot(10)
    for _ in range(3):
        connector.commit(a=5, b=2)
    assert latest(kafka) == ends_of(kafka)
    found = list(batches(kafka, kafka.beginning_offsets(TOPICS), most=45))
    assert [sorted(batch) for batch in found if batch] == [[n] for n in range(1, 6)] + [[6, 7, 8]]


def test_a_transaction_that_its_server_never_ended_waits_for_the_next_life(kafka: Kafka, connector: Connector) -> None:
    connector.commit(a=2, b=2)
    before = ends_of(kafka)
    connector.begin(a=2, b=2)
    assert latest(kafka) == before
    connector.begin_life(epoch=1, lsn=3)
    connector.snapshot(4)
    assert latest(kafka) == before
    connector.commit(a=1)
    assert latest(kafka) == ends_of(kafka)


def test_marks_switched_off_and_on_again_are_covered_by_the_next(kafka: Kafka, connector: Connector) -> None:
    connector.commit(a=4, b=4)
    start = latest(kafka)
    connector.marks = False
    connector.commit(a=4, b=4)
    connector.commit(a=4)
    assert list(batches(kafka, start, most=2)) == []
    connector.marks = True
    connector.begin(a=1, b=1)
    assert list(batches(kafka, start, most=2)) == []
    connector.end(a=1, b=1)
    assert list(batches(kafka, start, most=2)) == [{2, 3, 4}]


def test_a_gap_of_any_length_is_read_over_at_once(kafka: Kafka) -> None:
    connector = Connector(kafka, partitions=1)
    connector.commit(a=4, b=4)
    kafka.topics[TOPICS[0]][0].skip(1_000_000)
    connector.begin(a=200)
    start, kafka.reads = kafka.beginning_offsets(TOPICS), 0
    assert opened().whole(start, ends_of(kafka), most=100)[TOPICS[0]] == {0: 1_000_004}
    assert 0 < kafka.reads < 100


def test_transactions_of_other_tables_make_no_batches(kafka: Kafka, connector: Connector) -> None:
    for _ in range(5):
        connector.commit(other=0)
    connector.commit(a=1, other=0)
    assert list(batches(kafka, kafka.beginning_offsets(TOPICS), most=100)) == [{6}]


def test_marks_in_several_partitions_have_no_one_order_and_are_refused(kafka: Kafka, connector: Connector) -> None:
    connector.commit(a=1)
    kafka.topics[MARKS].append(Log())
    for ask in (lambda: latest(kafka), lambda: list(batches(kafka, kafka.beginning_offsets(TOPICS), most=1))):
        with pytest.raises(TopicMismatch, match="has 2 partitions"):
            ask()
