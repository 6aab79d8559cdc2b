"""Topics without leaders yet, and topics that are made but not known yet, by admin clients that play the broker."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException

from eventstore import Settings
from eventstore.errors import BrokerRefused, BrokerUnreachable, TopicMissing
from eventstore.kafka import admin
from eventstore.kafka.admin import OffsetReader, ensure_topics
from eventstore.topics import event_topic


class Broker:
    """Answers list_offsets by an error so many times, then by offset 7."""

    def __init__(self, error: int, times: int) -> None:
        self.error, self.left = error, times

    def list_topics(self, timeout):
        return SimpleNamespace(topics={"order": SimpleNamespace(error=None, partitions={0: None})})

    def list_offsets(self, asked, **options):
        answer: Future = Future()
        if self.left:
            self.left -= 1
            answer.set_exception(KafkaException(KafkaError(self.error)))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(asked, answer)


def reader(broker, deadline=60.0):
    offsets = OffsetReader(Settings.for_broker("127.0.0.1:1"), deadline=deadline)
    offsets._cluster.admin = broker
    return offsets


@pytest.mark.parametrize("error", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH])
def test_a_partition_that_moves_is_asked_for_again(error):
    broker = Broker(error, 3)
    assert reader(broker).end_offsets(["order"]) == {"order": {0: 7}}
    assert broker.left == 0


def test_one_that_stays_without_a_leader_is_an_error_after_the_deadline():
    with pytest.raises(BrokerRefused, match=r"order"):
        reader(Broker(KafkaError.NOT_LEADER_FOR_PARTITION, 10_000), deadline=1.0).end_offsets(["order"])


def test_a_refusal_is_not_asked_again():
    broker = Broker(KafkaError.TOPIC_AUTHORIZATION_FAILED, 2)
    with pytest.raises(BrokerRefused):
        reader(broker).end_offsets(["order"])
    assert broker.left == 1


class KilledBroker(Broker):
    """Answers list_offsets by a number that is no offset."""

    def __init__(self, answer: int) -> None:
        super().__init__(0, 0)
        self.answer = answer

    def list_offsets(self, asked, **options):
        answer: Future = Future()
        answer.set_result(SimpleNamespace(offset=self.answer))
        return dict.fromkeys(asked, answer)


@pytest.mark.parametrize("answer", [OFFSET_INVALID, OFFSET_STORED, OFFSET_BEGINNING, OFFSET_END])
@pytest.mark.parametrize("ask", ["end_offsets", "beginning_offsets"])
def test_a_number_that_is_no_offset_is_a_broker_that_does_not_answer(ask, answer):
    with pytest.raises(BrokerUnreachable, match="offsets of 'order'"):
        getattr(reader(KilledBroker(answer)), ask)(["order"])


@pytest.mark.parametrize("answer", [OFFSET_INVALID, OFFSET_STORED, OFFSET_BEGINNING])
def test_so_it_is_where_a_moment_is_looked_for(answer):
    broker = reader(KilledBroker(answer))
    broker.end_offsets = lambda topics: {"order": {0: 7}}
    with pytest.raises(BrokerUnreachable):
        broker.offsets_at(datetime.now(UTC), ["order"])


class LateBroker:
    """Makes a topic at once, and knows of it from the third question on."""

    def __init__(self, knows_at: int) -> None:
        self.questions, self._knows_at = 0, knows_at

    def create_topics(self, topics, **options):
        made: Future = Future()
        made.set_result(None)
        return {topic.topic: made for topic in topics}

    def list_topics(self, timeout):
        self.questions += 1
        known = {"order": SimpleNamespace(error=None, partitions={0: None})}
        return SimpleNamespace(topics=known if self.questions >= self._knows_at else {})


def made_by(broker, monkeypatch, *, deadline):
    monkeypatch.setattr(admin, "AdminClient", lambda settings: broker)
    monkeypatch.setattr(admin, "compare_topics", lambda *_, **__: admin.TopicsCompared(["order"], []))
    return ensure_topics(Settings.for_broker("127.0.0.1:1"), [event_topic("order", partitions=1)], deadline=deadline)


def test_a_topic_is_made_once_the_broker_knows_of_it(monkeypatch):
    broker = LateBroker(knows_at=3)
    assert (made_by(broker, monkeypatch, deadline=10), broker.questions) == (["order"], 3)


def test_a_topic_that_the_broker_never_hears_of_is_told(monkeypatch):
    with pytest.raises(TopicMissing, match="'order' does not exist"):
        made_by(LateBroker(knows_at=1_000_000), monkeypatch, deadline=0.2)
