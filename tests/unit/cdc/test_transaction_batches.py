"""A reader of whole transactions goes on over marks that are missing, late or of another life."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cdc.changes.transactions import SourceTransactions
from eventstore.errors import TopicMismatch
from eventstore.settings import Settings
from tests.unit.cdc.marked_topics import MARKS, PREFIX, TOPICS, Connector, Kafka, Log, Offsets


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
