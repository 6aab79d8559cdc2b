"""Records that cannot be unpacked are waited for or kept as one dead letter, and what stands around them is handled."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from eventstore import open_subscriber
from eventstore.errors import RecordsUnreadable
from eventstore.kafka.consumer import RangeReader, end_of_batch, read_range
from eventstore.kafka.groups import group_offsets, offsets_behind, subscription_lag
from tests.integration.delivering import deliver, noting
from tests.integration.packed import TOO_LONG, limited_settings, send_packed
from tests.waiting import wait_until


@pytest.fixture
def limited(settings):
    return limited_settings(settings)


def test_records_that_cannot_be_unpacked_are_one_dead_letter_that_names_them(limited, settings, payments):
    payments.receive([1, 2], partition=0)
    send_packed(settings, payments.name, [TOO_LONG] * 3, codec="zstd")
    payments.receive([3], partition=0)
    payments.receive([4], partition=1)
    seen: list[int] = []
    declared = noting(payments.name, group="g", into=seen)
    with open_subscriber(declared, settings=limited) as subscriber:
        report = deliver(subscriber, records=5)
        wait_until(lambda: subscriber.run_once(timeout=0.1) and not subscriber.lag().records)
    assert (report.handled, report.dead, sorted(seen)) == (4, 1, [1, 2, 3, 4])
    (letter,) = read_range(settings, declared.dead_letter_topic)
    told = dict(letter.headers)
    assert (letter.key, letter.value) == (None, None)
    assert (told["dead_letter_offset"], told["dead_letter_error"]) == (b"2", b"RecordsUnreadable")
    assert f"{payments.name!r} from offset 2 of partition 0".encode() in told["dead_letter_message"]
    assert b"receive.message.max.bytes" in told["dead_letter_message"]
    assert group_offsets(settings, payments.name, group="g")[0] == 6


def test_records_that_cannot_be_unpacked_wait_like_others(limited, settings, payments):
    send_packed(settings, payments.name, [TOO_LONG] * 3, codec="zstd")
    payments.receive([1], partition=1)
    lag = subscription_lag(limited, [payments.name], group="nobody")
    assert {part.partition: part.records for part in lag.partitions if part.records} == {0: 3, 1: 1}
    assert lag.seconds > 0
    assert offsets_behind(limited, payments.name, {0: 0, 1: 0}) == 4


def test_what_stands_between_batches_that_cannot_be_unpacked_is_handled(limited, settings, payments):
    """The end of the first is looked for by steps of 1, 2, 4, 8 offsets, which lead into the second."""
    send_packed(settings, payments.name, [TOO_LONG] * 4, codec="zstd")
    payments.receive([1], partition=0)
    send_packed(settings, payments.name, [TOO_LONG] * 12, codec="zstd")
    payments.receive([2], partition=0)
    seen: list[int] = []
    declared = noting(payments.name, group="g", into=seen)
    with open_subscriber(declared, settings=limited) as subscriber:
        report = deliver(subscriber, records=4)
    assert (report.handled, report.dead, seen) == (2, 2, [1, 2])
    told = [dict(letter.headers)["dead_letter_offset"] for letter in read_range(settings, declared.dead_letter_topic)]
    assert told == [b"0", b"5"]


def test_an_open_transaction_does_not_hide_where_a_batch_that_cannot_be_unpacked_ends(limited, settings, payments):
    send_packed(settings, payments.name, [TOO_LONG] * 3, codec="zstd")
    producer = Producer({**settings.kafka.librdkafka(), "transactional.id": payments.name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(payments.name, b"later", partition=0)
    assert producer.flush(60) == 0
    assert end_of_batch(limited, payments.name, 0, first=0) == 3
    producer.abort_transaction()


def test_a_range_reader_gives_all_that_stands_before_what_it_cannot_unpack_and_asks_for_no_more(
    limited, settings, payments
):
    payments.receive([1, 2], partition=0)
    send_packed(settings, payments.name, [TOO_LONG], codec="zstd")
    with RangeReader(limited) as reader:
        reader.seek({payments.name: {0: 0}})
        assert [record.offset for record in reader.read_up_to({payments.name: {0: 2}})] == [0, 1]
        reader.seek({payments.name: {0: 0}})
        records = reader.read_up_to({payments.name: {0: 3}})
        assert [next(records).offset for _ in range(2)] == [0, 1]
        with pytest.raises(RecordsUnreadable):
            next(records)
