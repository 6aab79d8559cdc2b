"""What doctor says of a store's topics, given the brokers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from typer.testing import CliRunner

from cdc import OutboxSource, Severity, diagnose_connector, prepare_topics
from cdc.operating.planning import require_own_topics
from eventstore import Settings, SqlEventStore
from eventstore.errors import ForeignRecord, RelayError
from eventstore.kafka.admin import end_offsets, ensure_topics
from eventstore.relay import Relay
from eventstore.topics import branch_topic
from factfold.cli.entry import application
from tests.crates import crate_store, fill, topic_of
from tests.errors import raises


@pytest.fixture
def store(database: Callable[[], str]) -> Iterator[SqlEventStore]:
    store = crate_store(database())
    yield store
    store.close()


def found_by_doctor(store: SqlEventStore, servers: str | None) -> dict[str, Any]:
    variables = {"FACTFOLD_STORE_URL": store.engine.url.render_as_string(hide_password=False)}
    if servers is not None:
        variables["FACTFOLD_KAFKA__BOOTSTRAP_SERVERS"] = servers
    ran = CliRunner().invoke(application(), ["doctor", "--json"], env=variables)
    return {one["check"]: one for one in json.loads(ran.stdout)}


def test_a_topic_that_was_given_more_partitions_or_another_policy_is_found_with_what_to_do(store, settings):
    topic = topic_of(store)
    fill(store, 1)
    Relay(store, settings).run(stop=threading.Event(), once=True)
    store.declare_category("box", partitions=2, topic=f"{topic}.box")
    ensure_topics(settings, [branch_topic(f"{topic}.box", partitions=2)])
    admin = AdminClient(settings.kafka.librdkafka())
    for answer in admin.create_partitions([NewPartitions(topic, 5)]).values():
        answer.result(10)
    found = found_by_doctor(store, settings.kafka.bootstrap_servers)["topics"]
    assert found["severity"] == "error"
    assert f"topic '{topic}' has 5 partitions, 3 are required" in found["result"]
    assert f"topic '{topic}.box' has cleanup.policy=delete, compact is required" in found["result"]
    assert "published again from its store" in found["remedy"]
    assert "set cleanup.policy=compact" in found["remedy"]


@pytest.fixture
def taken(store: SqlEventStore, settings: Settings, database: Callable[[], str]) -> Iterator[SqlEventStore]:
    """Another service's store, of the same source and the same aggregate, for a topic that the first one has filled."""
    fill(store, 1)
    Relay(store, settings).run(stop=threading.Event(), once=True)
    other = crate_store(database(), topic=topic_of(store))
    fill(other, 1)
    yield other
    other.close()


def test_a_topic_that_another_service_has_filled_is_found_by_both_doctors_and_refused_by_all_that_would_fill_it(
    store, taken, settings
):
    topic, before = topic_of(store), end_offsets(settings, [topic_of(store)])
    assert found_by_doctor(store, settings.kafka.bootstrap_servers)["topics"]["severity"] == "ok"
    found = found_by_doctor(taken, settings.kafka.bootstrap_servers)["topics"]
    assert found["severity"] == "error"
    assert (
        f"'{topic}' ends with a record that is no event of this store: b'crate-1@0' of source '/factfold'"
        in (found["result"])
    )
    assert "topic_prefix=" in found["remedy"]
    with pytest.raises(ForeignRecord, match="no event of this store"):
        prepare_topics(settings, stores=[taken])
    assert prepare_topics(settings, stores=[store]) == []
    with raises(RelayError, code="topic-not-relayed", match="no event of this store"):
        Relay(taken, settings).run(stop=threading.Event(), once=True)
    outbox = OutboxSource(
        name="taken", topic_prefix="taken", host="h", port=1, database="d", user="u", password="${env:PASSWORD}"
    )
    with pytest.raises(ForeignRecord, match="no event of this store"):
        require_own_topics(settings, outbox, taken.engine)
    findings = {one.check: one for one in diagnose_connector(outbox, source=taken.engine, settings=settings)}
    assert findings[f"topic {topic}"].severity is Severity.ERROR
    assert end_offsets(settings, [topic]) == before
