"""What a projection refuses: a cause, a remedy and a place each, nothing applied, and it goes on once repaired."""

from __future__ import annotations

import struct
import uuid
from decimal import Decimal

import pytest
import sqlalchemy as sa

from eventstore import Settings
from eventstore.errors import BrokerUnreachable, TopicMissing
from eventstore.event_types import event_type_of
from eventstore.kafka.producer import OutgoingRecord
from eventstore.schema_registry import RegisteredSchema
from projections import Environment, ProjectionGroup, RunnerOptions, Table, open_runner, rebuild, view
from projections.errors import (
    DefinitionChanged,
    InvalidDefinition,
    KeyNotUnique,
    NoServingGeneration,
    RightMissing,
    TableStoreUnavailable,
    UndecodableRecord,
    UnknownColumn,
    UnknownSchemaId,
)
from projections.spark.reading.kafka_source import KafkaLog
from projections.stores.postgres import PostgresTableStore
from tests.integration.late_events import Late
from tests.integration.log_writer import LogWriter
from tests.integration.tickets import CUSTOMERS, DECLARED, REGIONS, Ticket, ticket_group


@pytest.fixture
def road(environment):
    env = environment()
    return env, LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)


def one_table_group(writer, function=None, **options):
    """A group of one view over the writer's events; ``function`` is the view's."""
    evolved = Table.from_events(Ticket, key="ticket_id", columns=DECLARED, topic=writer.events_topic, **options)

    def ticket_rows(evolved):
        return evolved

    chosen = function or ticket_rows
    chosen.__name__ = "ticket_rows"
    name = f"bad_{writer.events_topic.rpartition('.')[2]}"
    return ProjectionGroup(name, [view(key="ticket_id", tables={"evolved": evolved})(chosen)])


def opened(writer, identity="t1"):
    return writer.event(identity, Ticket.Opened(customer_id=1, hours=Decimal(1)))


def count(env, name):
    with env.store.transaction() as connection:
        return connection.scalar(sa.text(f"SELECT count(*) FROM {name}"))


def newer_schema_of(event):
    """The event's schema with one field more, as a later release would register it."""
    known = event_type_of(event).schema
    return RegisteredSchema.of({**known, "fields": [*known["fields"], {"name": "added", "type": "long"}]})


def assert_helpful(caught, *words):
    error = caught.value
    assert error.remedy
    assert "\n" not in error.message
    assert "py4j" not in str(error).lower()
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (b"{not avro}", UndecodableRecord, "not Avro in Confluent framing"),
        (b"", UndecodableRecord, "not Avro in Confluent framing"),
        (struct.pack(">bI", 0, 123_456_789) + b"x", UnknownSchemaId, "123456789"),
        (event_type_of(Ticket.Opened).encode(Ticket.Opened(customer_id=1, hours=Decimal(1)))[:8],
         UndecodableRecord, "does not fit its schema"),
        (event_type_of(Ticket.Moved).encode(Ticket.Moved(customer_id=1))[:5], UndecodableRecord, "does not fit"),
    ],
    ids=["json", "empty", "unknown schema", "truncated", "truncated, all fields optional"],
)  # fmt: skip
def test_a_record_that_cannot_be_decoded_stops_the_run_at_its_offset(road, value, kind, words):
    env, writer = road
    group = one_table_group(writer)
    writer.send([opened(writer, "t1")])
    rebuild(env, group)
    bad = OutgoingRecord(topic=writer.events_topic, key=b"ticket-t2@0", value=value, headers=(), partition=2)
    with open_runner(env, group, options=RunnerOptions(schema_patience=0.0)) as runner:
        before = runner.progress
        writer.send([bad, opened(writer, "t3")])
        with pytest.raises(kind) as caught:
            runner.run_once()
        assert_helpful(caught, words, f"topic {writer.events_topic}, partition 2, offset ")
        assert runner.progress == before
    assert count(env, "ticket_rows") == 1
    with pytest.raises(kind):
        rebuild(env, group)
    assert count(env, "ticket_rows") == 1


def test_a_record_keyed_otherwise_than_by_stream_and_version_stops_the_run(road):
    env, writer = road
    group = one_table_group(writer)
    rebuild(env, group)
    keyed_as_a_row = OutgoingRecord(topic=writer.events_topic, key=b'{"id": 1}', value=opened(writer).value)
    with open_runner(env, group) as runner:
        writer.send([keyed_as_a_row])
        with pytest.raises(UndecodableRecord) as caught:
            runner.run_once()
    assert_helpful(caught, "is not stream@version", '{"id": 1}')


def test_a_schema_that_is_registered_while_the_run_goes_on_is_looked_up(road):
    env, _ = road
    late = LogWriter(env.log.settings, Late)
    evolved = Table.from_events(Late, key="late_id", topic=late.events_topic)

    @view(key="late_id", tables={"evolved": evolved})
    def late_rows(evolved):
        return evolved

    group = ProjectionGroup(f"late_{late.events_topic.rpartition('.')[2]}", [late_rows])
    late.send([late.event("a", Late.Began(note="x"))])
    rebuild(env, group)
    with open_runner(env, group) as runner:
        newer = newer_schema_of(Late.Began)
        late.send([late.schema(newer), late.raw_event("b", newer, {"note": "y", "added": 7})])
        runner.catch_up()
    assert count(env, "late_rows") == 2


def test_a_missing_version_stops_the_run(road):
    env, writer = road
    group = one_table_group(writer)
    writer.send([opened(writer, "t1")])
    rebuild(env, group)
    with open_runner(env, group) as runner:
        writer.send([writer.event("t1", Ticket.Closed(), version=2)])
        with pytest.raises(UndecodableRecord) as caught:
            runner.run_once()
        assert_helpful(caught, "events are missing before version 2")
        writer.send([writer.event("t1", Ticket.Moved(customer_id=3), version=1)])
        runner.catch_up()
    assert count(env, "ticket_rows") == 1


def test_a_view_that_names_an_unknown_column_is_refused_with_those_there_are(road):
    env, writer = road
    group = one_table_group(writer, lambda evolved: evolved.select("ticket_id", "statsu"))
    with pytest.raises(UnknownColumn) as caught:
        rebuild(env, group)
    assert_helpful(caught, "statsu", "status", "view ticket_rows")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda evolved: evolved.limit(3), "a limit"),
        (lambda evolved: evolved.sample(0.5), "a sample"),
        (lambda evolved: evolved.groupBy("ticket_id").count(), "an aggregate"),
        (lambda evolved: evolved.selectExpr("ticket_id", "rand() AS luck"), "a random value"),
        (lambda evolved: evolved.selectExpr("ticket_id", "randn() AS luck"), "a random value"),
        (lambda evolved: evolved.selectExpr("ticket_id", "now() AS at"), "the time of day"),
        (lambda evolved: evolved.selectExpr("ticket_id", "current_date() AS day"), "the time of day"),
        (lambda evolved: evolved.selectExpr("ticket_id", "localtimestamp() AS at"), "the time of day"),
    ],
)
def test_a_view_function_that_looks_beyond_its_references_is_refused(road, function, words):
    env, writer = road
    with pytest.raises(InvalidDefinition) as caught:
        rebuild(env, one_table_group(writer, function))
    assert_helpful(caught, words)


def test_a_view_function_that_returns_a_key_twice_is_refused(road):
    env, writer = road
    writer.send([opened(writer, "t1")])
    with pytest.raises(KeyNotUnique) as caught:
        rebuild(env, one_table_group(writer, lambda evolved: evolved.union(evolved.where("true"))))
    assert_helpful(caught, "'t1' twice")


def test_a_topic_that_is_not_there_is_named(road):
    env, _ = road
    missing = Table.from_events(Ticket, key="ticket_id", columns=DECLARED, topic="no.such.topic")

    @view(key="ticket_id", tables={"missing": missing})
    def nothing(missing):
        return missing

    with pytest.raises(TopicMissing) as caught:
        rebuild(env, ProjectionGroup("nothing", [nothing]))
    assert_helpful(caught, "no.such.topic")


def test_an_unreachable_broker_is_told_within_seconds(road):
    env, writer = road
    elsewhere = Environment(env.spark, env.small, env.store, KafkaLog(Settings.for_broker("127.0.0.1:1")))
    with pytest.raises(BrokerUnreachable) as caught:
        rebuild(elsewhere, one_table_group(writer))
    assert_helpful(caught, "127.0.0.1:1")


def test_a_wrong_password_of_the_views_database_is_told_without_the_password(stack):
    url = stack.info.postgres.url("postgres").replace(stack.info.postgres.password, "wrong-sentinel")
    store = PostgresTableStore(url)
    with pytest.raises(TableStoreUnavailable) as caught:
        store.prepare()
    assert_helpful(caught, "password authentication failed")
    assert "wrong-sentinel" not in str(caught.value) + repr(store)
    store.close()


@pytest.fixture
def granted(database):
    """A database, a role of it that may log in and nothing else, and a function that gives it more."""
    url, role = sa.make_url(database()), f"viewer_{uuid.uuid4().hex[:8]}"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")

    def execute(statement):
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    execute(f"CREATE ROLE {role} LOGIN PASSWORD 'sentinel'")
    as_role = url.set(username=role, password="sentinel").render_as_string(hide_password=False)
    yield as_role, lambda what: execute(f"GRANT CREATE ON {what} TO {role}"), url.database
    engine.dispose()


def test_a_right_that_the_role_of_the_views_lacks_is_told_and_with_it_the_views_are_built(granted, road, environment):
    url, grant, name = granted
    env, writer = road
    with pytest.raises(RightMissing) as caught:
        environment(PostgresTableStore(url))
    assert_helpful(caught, "permission denied", "CREATE on the database")
    assert "sentinel" not in str(caught.value)
    grant(f"DATABASE {name}")
    env = environment(PostgresTableStore(url))
    writer.send([opened(writer, f"t{n}") for n in range(3)])
    with pytest.raises(RightMissing, match="permission denied for schema public"):
        rebuild(env, one_table_group(writer))
    grant("SCHEMA public")
    assert rebuild(env, one_table_group(writer)).rows["ticket_rows"] == 3


def test_a_run_needs_a_built_view_of_the_same_definition(road):
    env, writer = road
    with pytest.raises(NoServingGeneration), open_runner(env, one_table_group(writer)):
        pass
    rebuild(env, one_table_group(writer))
    changed = one_table_group(writer, lambda evolved: evolved.select("ticket_id", "status"))
    with pytest.raises(DefinitionChanged), open_runner(env, changed):
        pass


def test_the_group_of_the_tests_themselves_is_accepted(road):
    env, writer = road
    report = rebuild(env, ticket_group(writer))
    assert report.rows["ticket_chain"] == 0
