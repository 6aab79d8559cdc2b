"""Topics of final results in Kafka: each result once, though a publisher is killed, and nothing is ever removed."""

from __future__ import annotations

import json
import uuid
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from eventstore.errors import ProducerFenced, TopicMismatch
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import Publisher
from eventstore.topics import TopicSpec
from projections import FinalTopic
from projections.outputs.publishing import opened_publisher, prepare_topics
from projections.spark.reading.kafka_source import KafkaLog
from projections.stores import outbox
from projections.stores.sqlite import SqliteTableStore
from tests.conformance.topic_folds import Died, Finals, dies_instead_of, group_of


@pytest.fixture
def topic():
    return f"finals-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def shop(settings, tmp_path):
    with closing(SqliteTableStore(tmp_path / "views.db")) as store:
        store.prepare()
        yield Finals(store, KafkaLog(settings))


def ids(settings, topic):
    return sorted(json.loads(record.key)["id"] for record in read_range(settings, topic))


def test_each_result_is_in_its_topic_once_though_a_publisher_is_killed_and_another_one_goes_on(
    shop, settings, topic, monkeypatch
):
    group = group_of(topic=FinalTopic(topic, partitions=3))
    run, layout = shop.serve(group, range(9))
    shop.give_out(run, layout, 5)
    with dies_instead_of(Publisher, "commit", monkeypatch), pytest.raises(Died):
        shop.publish(group)
    assert ids(settings, topic) == []
    with dies_instead_of(outbox, "note_sent", monkeypatch), pytest.raises(Died):
        shop.publish(group)
    assert (ids(settings, topic), shop.waiting()) == ([0, 1, 2, 3], {topic: 4})
    with opened_publisher(shop.environment, group) as late:
        shop.give_out(run, layout, 7)
        assert shop.publish(group) == 2  # by a publisher that has followed the late one
        shop.give_out(run, layout, 30)
        with pytest.raises(ProducerFenced):
            late.publish()
    shop.publish(group)
    assert ids(settings, topic) == list(range(9))
    assert tuple((r.key, r.value) for r in sorted(read_range(settings, topic), key=lambda r: r.key)) == shop.given()
    admin = AdminClient(settings.kafka.librdkafka())
    admin.delete_topics([topic])[topic].result(10)
    assert shop.publish(group) == 9  # it is made anew, and filled from the table
    assert ids(settings, topic) == list(range(9))


@pytest.mark.parametrize(
    ("config", "words"),
    [({"cleanup.policy": "compact"}, "cleanup.policy=compact, delete is required"),
     ({"cleanup.policy": "delete", "retention.ms": "604800000"}, "retention.ms=604800000: its old records would be"),
     ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000"}, "retention.bytes=1000")],
)  # fmt: skip
def test_a_topic_that_would_lose_results_is_refused(shop, settings, topic, config, words):
    ensure_topics(settings, [TopicSpec(topic, 4, config)])
    with pytest.raises(TopicMismatch) as caught:
        prepare_topics(shop.environment, group_of(topic=topic))
    assert words in caught.value.message
