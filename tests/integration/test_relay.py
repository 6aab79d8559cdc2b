"""The relay on real servers: every record once and in order, whatever became of the leader before."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eventstore import ANY, Restarts, SqlEventStore
from eventstore.backends.sql import outbox as outbox_module
from eventstore.backends.sql.outbox import BEFORE_ALL, Outbox
from eventstore.errors import (
    BrokerRefused,
    ProducerFenced,
    RelayError,
    StoreNotPrepared,
    StoreUnavailable,
    UnsupportedBackend,
)
from eventstore.kafka import tails
from eventstore.kafka.admin import end_offsets, ensure_topics, limit_retention
from eventstore.kafka.consumer import read_range, read_schemas
from eventstore.kafka.producer import OutgoingRecord, Publisher, RecordProducer
from eventstore.relay import Relay, Term, relay_status
from eventstore.settings import Settings
from eventstore.topics import DELETED_TYPE, event_topic, message_key, partition_of
from sample_app.background import Background
from tests.commands import factfold
from tests.crates import Crate, crate_store, faults, fill, topic_of
from tests.errors import raises
from tests.waiting import wait_until

CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name LIKE 'factfold relay%%' AND datname = current_database()"
)


@pytest.fixture
def store(database) -> Iterator[SqlEventStore]:
    store = crate_store(database())
    yield store
    store.close()


@pytest.fixture
def relay_once(store, settings):
    return lambda: Relay(store, settings).run(stop=threading.Event(), once=True)


@contextmanager
def running(store: SqlEventStore, settings: Settings) -> Iterator[tuple[Relay, list[str]]]:
    """A relay in a thread of its own, and what it says of itself."""
    relay, states = Relay(store, settings), list[str]()
    with Background(lambda stop: relay.run(stop=stop, on_state=states.append), name="relay").running():
        yield relay, states


def records_of(store, settings):
    return list(read_range(settings, topic_of(store)))


def execute(store, statement):
    with store.engine.begin() as connection:
        return connection.exec_driver_sql(statement)


def test_every_event_is_published_once_and_in_order(store, settings, relay_once):
    fill(store, *range(20), times=30)
    assert relay_once().events == 600
    fill(store, *range(10, 30), times=10)
    assert relay_once().events == 200
    assert relay_once().events == 0
    assert faults(store, records_of(store, settings)) == {}


def test_schemas_are_published_before_their_events_and_once_for_all_stores(store, settings, relay_once, database):
    fill(store, 1)
    relay_once()
    (schema,) = store.schemas()
    assert read_schemas(settings)[schema.id] == schema
    with closing(crate_store(database())) as other:
        assert Relay(other, settings).run(stop=threading.Event(), once=True).schemas == 0


def test_a_running_relay_follows_what_is_appended_and_categories_that_are_new(store, settings):
    with running(store, settings) as (relay, states):
        wait_until(lambda: states == ["leading"])
        for number in range(50):
            fill(store, number % 5)
        wait_until(lambda: relay.report.events == 50)
        topic = f"{topic_of(store)}.box"
        store.declare_category("box", partitions=2, topic=topic)
        store.append("box-1", [Crate.Filled(grams=1)], expected=ANY)
        wait_until(lambda: relay.report.events == 51)
        assert [record.key for record in read_range(settings, topic)] == [b"box-1@0"]
    assert faults(store, [*records_of(store, settings), *read_range(settings, topic)], order=False) == {}


def test_nothing_passes_a_transaction_that_is_still_open(store, settings, relay_once):
    with store.engine.begin() as early:
        store.append("crate-1", [Crate.Filled(grams=1)], expected=ANY, connection=early)
        fill(store, 2, 3)
        assert relay_once().events == 0
    assert relay_once().events == 3
    assert faults(store, records_of(store, settings)) == {}


def test_what_a_dead_leader_had_not_committed_is_published_once(store, settings, relay_once):
    fill(store, *range(10), times=4)
    relay_once()
    fill(store, *range(10), times=40)
    with Outbox(store.engine, store.tables) as outbox:
        dead = Publisher(settings, outbox.identity())
        page = outbox.page(BEFORE_ALL)[40:]
        for _ in range(3):  # more of it than the first window of the tail holds, on some partitions
            dead.send([record for record in page if record.partition != 1])
            dead._producer.flush(30)
            dead.close()
            dead = Publisher(settings, outbox.identity())
        dead.send(page)
        dead._producer.flush(30)
        assert relay_once().events == 400
        with pytest.raises(ProducerFenced, match="another producer has taken over"):
            dead.commit()
        dead.close()
    assert faults(store, records_of(store, settings)) == {}


def test_records_hidden_behind_somebody_elses_transaction_are_not_sent_again(store, settings, relay_once, monkeypatch):
    fill(store, *range(10))
    relay_once()
    other = Publisher(settings, "somebody else")
    with Outbox(store.engine, store.tables) as outbox:
        other.send(outbox.page(BEFORE_ALL))
    other._producer.flush(30)
    fill(store, *range(10))
    with Outbox(store.engine, store.tables) as outbox, Publisher(settings, outbox.identity()) as ours:
        ours.send(outbox.page(BEFORE_ALL)[10:])
        ours.commit()
    monkeypatch.setattr(tails, "PATIENCE_SECONDS", 1)
    with raises(RelayError, code="topic-not-relayed", match="another producer's transaction stays open"):
        relay_once()
    other.close()
    assert relay_once().events == 0
    assert faults(store, records_of(store, settings)) == {}


def test_partitions_that_lack_records_get_theirs_and_the_others_none_again(store, settings, relay_once):
    """As a writer without transactions would leave them: the end of each partition counts, not one place for all."""
    fill(store, *range(30), times=5)
    topic = topic_of(store)
    ensure_topics(settings, [event_topic(topic, partitions=3)])
    with Outbox(store.engine, store.tables) as outbox:
        lot = [record for record in outbox.page(BEFORE_ALL) if record.partition != 2]
    half = [r for r in lot if r.partition == 0] + [r for r in lot if r.partition == 1][:20]
    raw = Producer(settings.kafka.librdkafka_producer())
    for record in half:
        raw.produce(topic, record.value, record.key, partition=record.partition, headers=record.headers)
    raw.flush(10)
    assert relay_once().events == 150 - len(half)
    assert faults(store, records_of(store, settings)) == {}


def test_a_topic_that_was_deleted_is_filled_again(store, settings, relay_once):
    fill(store, *range(5), times=3)
    relay_once()
    admin = AdminClient(settings.kafka.librdkafka())
    admin.delete_topics([topic_of(store)])[topic_of(store)].result(10)
    wait_until(lambda: relay_once().events)
    assert faults(store, records_of(store, settings)) == {}


def test_tombstones_of_deleted_streams_are_no_end(store, settings, relay_once):
    fill(store, 1, 2, 3, times=3)
    relay_once()
    keys = [f"crate-{crate}@{version}" for crate in (1, 2) for version in range(3)]
    places = {(r.key or b"").decode(): r.partition for r in records_of(store, settings)}
    RecordProducer(settings).send(
        OutgoingRecord(topic=topic_of(store), key=key.encode(), value=None, partition=places[key]) for key in keys
    )
    execute(store, "DELETE FROM events WHERE stream IN ('crate-1', 'crate-2')")
    assert relay_once().events == 0
    fill(store, 3, 4)
    assert relay_once().events == 2


@pytest.mark.parametrize(
    ("headers", "cause"),
    [
        ((("ce_id", b"5f0c7a52-63b8-4cf2-9d5c-1a53e9d11b3a"),), "no event of this store"),
        ((("ce_id", b"?"),), "no event of this store"),
        ((), "no event of this store"),
        ((("id", b"5f0c7a52-63b8-4cf2-9d5c-1a53e9d11b3a"),), "filled by a Debezium connector"),
    ],
    ids=["of another store", "no id", "no headers", "of Debezium"],
)
def test_a_topic_that_ends_with_somebody_elses_record_is_refused(store, settings, relay_once, headers, cause):
    fill(store, 1)
    relay_once()
    strange = OutgoingRecord(topic=topic_of(store), key=b"strange", value=b"1", headers=headers, partition=0)
    RecordProducer(settings).send([strange])
    with raises(RelayError, code="topic-not-relayed", match=cause) as refused:
        relay_once()
    assert f"{topic_of(store)}[0]@" in refused.value.place
    with raises(RelayError, code="topic-not-relayed"):
        relay_status(store, settings)


def test_an_event_whose_topic_is_no_categorys_is_refused(store, relay_once):
    fill(store, 1)
    execute(store, "UPDATE events SET topic = 'elsewhere'")
    with raises(RelayError, code="topic-not-relayed", match="'crate-1@0' goes to elsewhere"):
        relay_once()


def test_a_store_that_a_connector_publishes_is_refused_unless_its_slot_is_another_ones(store, settings, relay_once):
    execute(store, "CREATE PUBLICATION everything FOR TABLE events, schemas")
    assert relay_once().schemas == 0  # nobody reads the publication
    execute(store, "SELECT pg_create_logical_replication_slot('relay_test_slot', 'pgoutput')")
    try:
        with raises(RelayError, code="outbox-connector-found", match=r"'everything'.*'relay_test_slot'") as refused:
            relay_once()
        assert "pg_drop_replication_slot('relay_test_slot')" in refused.value.remedy
        knowing = Relay(store, settings, ignored_slots=["relay_test_slot"])
        assert knowing.run(stop=threading.Event(), once=True).events == 0
    finally:
        execute(store, "SELECT pg_drop_replication_slot('relay_test_slot')")


def test_a_restored_store_is_refused_until_it_is_renumbered(store, relay_once):
    fill(store, 1)
    execute(store, "UPDATE events SET order_xid = order_xid + 1000000000")
    with raises(StoreNotPrepared, code="store-restored", match="restored from another cluster"):
        relay_once()
    execute(store, "UPDATE events SET order_xid = 1")
    assert relay_once().events == 1


def test_an_event_longer_than_its_topic_takes_ends_the_relay_after_what_came_before(
    store, settings, relay_once, monkeypatch
):
    monkeypatch.setattr("eventstore.relay._RESTARTS", Restarts(limit=0))
    small = event_topic(topic_of(store), partitions=3)
    ensure_topics(settings, [type(small)(small.name, 3, {**small.config, "max.message.bytes": "1000"})])
    fill(store, 1)
    relay_once()
    execute(store, "INSERT INTO events SELECT (jsonb_populate_record(e, jsonb_build_object("
                   "'position', 1000, 'id', gen_random_uuid(), 'version', 1, 'message_key', 'crate-1@1', "
                   "'payload', '\\x' || repeat('00', 2000)))).* FROM events e")  # fmt: skip
    with pytest.raises(BrokerRefused, match=r"(?i)size"):
        relay_once()
    assert [record.key for record in records_of(store, settings)] == [b"crate-1@0"]


def test_pages_are_bounded_in_events_and_bytes(store, monkeypatch):
    fill(store, 1, times=10)
    with Outbox(store.engine, store.tables) as outbox:
        assert [len(outbox.page(BEFORE_ALL, events=number)) for number in (1, 7, 50)] == [1, 7, 10]
        size = len(outbox.page(BEFORE_ALL, events=1)[0].value)
        monkeypatch.setattr(outbox_module, "PAGE_BYTES", 4 * size)
        assert len(outbox.page(BEFORE_ALL)) == 4
        monkeypatch.setattr(outbox_module, "PAGE_BYTES", 1)
        assert len(outbox.page(BEFORE_ALL)) == 1


def test_a_leader_that_loses_its_session_commits_nothing_more(store, settings, monkeypatch):
    fill(store, 1, 2, 3)
    with Outbox(store.engine, store.tables) as outbox:
        assert outbox.lead()
        with Term(store, outbox, settings) as term:
            send = term._publisher.send

            def send_and_lose(records):
                send(records)
                term._publisher._producer.flush(30)
                execute(store, CUT)

            monkeypatch.setattr(term._publisher, "send", send_and_lose)
            with pytest.raises(StoreUnavailable):
                term.step(Relay(store, settings).report)
    assert records_of(store, settings) == []


def test_a_relay_goes_on_after_its_session_was_cut(store, settings):
    with running(store, settings) as (relay, states):
        fill(store, 1, 2, times=5)
        wait_until(lambda: relay.report.events == 10)
        execute(store, CUT)
        fill(store, 2, 3, times=5)
        wait_until(lambda: relay.report.events == 20)
        assert states == ["leading", "leading"]
    assert faults(store, records_of(store, settings)) == {}


def test_the_second_relay_stands_by_and_takes_over(store, settings):
    with ExitStack() as later:
        with running(store, settings) as (first, first_states):
            wait_until(lambda: first_states == ["leading"])
            second, states = later.enter_context(running(store, settings))
            wait_until(lambda: states == ["standing by"])
            fill(store, 1, 2)
            wait_until(lambda: first.report.events == 2)
            assert "factfold relay on" in relay_status(store, settings).leader
        fill(store, 2, 3)
        wait_until(lambda: second.report.events == 2)
        assert states == ["standing by", "leading"]
    assert relay_status(store, settings).leader is None
    assert faults(store, records_of(store, settings)) == {}


def test_a_schema_that_is_named_and_the_default_one_are_the_same_store(store, database):
    with SqlEventStore(store.engine, schema="public") as named, SqlEventStore(store.engine, schema="other") as other:
        other.create_tables()
        with Outbox(store.engine, store.tables) as one, Outbox(store.engine, named.tables) as same:
            assert one.lead()
            assert not same.lead()
            assert one.identity() == same.identity()
            with Outbox(store.engine, other.tables) as another:
                assert another.lead()
                assert another.identity() != one.identity()


def test_a_leader_that_is_frozen_loses_the_lock(store, monkeypatch):
    monkeypatch.setattr(outbox_module, "LEASE_SECONDS", 1)
    with Outbox(store.engine, store.tables) as frozen, Outbox(store.engine, store.tables) as second:
        assert frozen.lead()
        assert not second.lead()
        wait_until(second.lead)
        with pytest.raises(StoreUnavailable):
            frozen.page(BEFORE_ALL)


def test_a_role_that_may_only_read_four_tables_is_enough(store, settings, database):
    fill(store, 1)
    execute(store, "CREATE ROLE relay_reader LOGIN PASSWORD 'reads'")
    try:
        execute(store, "GRANT SELECT ON events, schemas, categories, deleted_events TO relay_reader")
        url = store.engine.url.set(username="relay_reader", password="reads")
        with SqlEventStore(url) as read_only:
            assert Relay(read_only, settings).run(stop=threading.Event(), once=True).events == 1
            assert relay_status(read_only, settings).waiting[0].events == 0
    finally:
        execute(store, "DROP OWNED BY relay_reader")
        execute(store, "DROP ROLE relay_reader")


def test_a_topic_that_has_deleted_all_it_had_is_not_published_again(store, settings, relay_once):
    fill(store, 1, times=5)
    relay_once()
    topic, admin = topic_of(store), AdminClient(settings.kafka.librdkafka())
    limit_retention(settings, topic, retention_ms=86_400_000)
    ends = end_offsets(settings, [topic])[topic]
    for answer in admin.delete_records([TopicPartition(topic, p, end) for p, end in ends.items() if end]).values():
        answer.result(10)
    fill(store, 1)
    with raises(RelayError, code="topic-not-relayed", match=r"every record of .* was deleted"):
        relay_once()
    assert end_offsets(settings, [topic])[topic] == ends


# ---- Deleted streams on the relay's road: the same records without values, each once, whatever the topic ended with


GONE, KEPT = "crate-gone", "crate-kept"


def packed(store: SqlEventStore, stream: str, count: int) -> None:
    store.append(stream, [Crate.Filled(grams=grams) for grams in range(count)], expected=ANY)


def test_a_deletion_follows_its_events_under_their_keys_and_in_their_partition(store, settings, relay_once):
    """The topic ends with what is deleted, so its end has to be found by the places that deleted events had."""
    packed(store, KEPT, 1)
    packed(store, GONE, 3)
    assert relay_once().events == 4
    store.delete_stream(GONE, expected=2)
    assert relay_once().events == 4
    assert relay_once().events == 0
    found = [record for record in records_of(store, settings) if (record.key or b"").startswith(GONE.encode())]
    keys = [message_key(GONE, version).encode() for version in (0, 1, 2, 0, 1, 2, 3)]
    assert [record.key for record in sorted(found, key=lambda record: record.offset)] == keys
    assert [record.value is None for record in sorted(found, key=lambda record: record.offset)] == [False] * 3 + [
        True
    ] * 4
    partitions = store.categories()[0].partitions
    assert {record.partition for record in found} == {partition_of(GONE, partitions)}
    assert {dict(record.headers)["ce_type"] for record in found if record.value is None} == {DELETED_TYPE.encode()}


def test_without_the_places_of_deleted_events_the_end_of_the_topic_would_not_be_known(store, relay_once):
    packed(store, GONE, 2)
    relay_once()
    store.delete_stream(GONE, expected=1)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("delete from deleted_events")
    with raises(RelayError, code="topic-not-relayed"):
        relay_once()


# ---- `factfold relay`: what it prints, and its exit codes


@pytest.fixture
def relay(stack, store, monkeypatch):
    """Run ``factfold relay …`` in this process, on a store with six events."""
    fill(store, 1, 2, times=3)
    monkeypatch.setenv("FACTFOLD_STORE_URL", store.engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", stack.info.bootstrap_servers)
    return partial(factfold, "relay")


def test_status_and_run_say_what_waits_who_leads_and_what_was_published(relay, store):
    found = relay("status", "--json")
    told = json.loads(found.stdout)
    assert (found.exit_code, told["leader"]) == (3, None)
    (crate,) = told["categories"]
    assert (crate["category"], crate["topic"], crate["waiting"]) == ("crate", topic_of(store), 6)
    assert crate["seconds"] > 0
    leading, report = map(json.loads, relay("run", "--once", "--json").stdout.splitlines())
    assert leading == {"state": "leading"}
    assert (report["events"], report["transactions"]) == (6, 1)
    again = relay("run", "--once")
    assert (again.exit_code, again.stderr, again.stdout) == (0, "leading\n", "0 events, 0 schemas, 0 transactions\n")
    assert relay("status").stdout == f"nobody publishes\n{topic_of(store)}: 0 events wait, 0.0 s\n"


def test_a_store_that_cannot_be_relayed_is_refused(relay):
    with pytest.raises(UnsupportedBackend, match="no relay for sqlite"):
        relay("run", "--store-url", "sqlite://", catch_exceptions=False)
    away = "postgresql://someone:sentinel@127.0.0.1:1/shop"
    with pytest.raises(StoreUnavailable, match="does not answer") as refused:
        relay("status", "--store-url", away, catch_exceptions=False)
    assert "sentinel" not in str(refused.value)
