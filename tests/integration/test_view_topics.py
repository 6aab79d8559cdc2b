"""View topics in Kafka: filled, followed, taken up after a kill, changed by a cut-over, and read by another group."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from datetime import timedelta
from decimal import Decimal

import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from eventstore.errors import ProducerFenced, TopicMismatch
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import Publisher
from eventstore.topics import TopicSpec, partition_of
from factfold.cli.entry import application
from projections import (
    FinalTopic,
    ProjectionGroup,
    RunMetrics,
    Table,
    ViewTopic,
    open_runner,
    rebuild,
    rollback,
    verify,
    view,
)
from projections.outputs.publishing import ViewPublisher, opened_publisher, prepare_topics
from projections.spark.reading.kafka_source import KafkaLog
from projections.stores import outbox
from projections.stores.sqlite import SqliteTableStore
from tests.conformance.topic_folds import Died, Finals, dies_instead_of, group_of
from tests.integration.log_writer import LogWriter
from tests.integration.rebuild_watching import Killed, opened
from tests.integration.tickets import DECLARED, Ticket

TOPIC_ROWS = sa.Table(
    "topic_rows",
    sa.MetaData(),
    sa.Column("ticket_id", sa.Text, primary_key=True),
    sa.Column("hours", sa.Numeric(18, 4)),
)


@pytest.fixture
def writer(env):
    return LogWriter(env.log.settings, Ticket)


def open_tickets(writer, *, version=1, columns=("ticket_id", "status"), least=0, topic=None):
    """The tickets that are not closed, in a topic; of another version with other columns, or fewer of them."""
    tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED, topic=writer.events_topic)
    lag = timedelta(hours=6)

    @view(key="ticket_id", tables={"tickets": tickets}, topic=topic or ViewTopic(topic_of(writer), 3, lag))
    def ticket_rows(tickets):
        return tickets.where(f"status <> 'closed' AND hours >= {least}").select(*columns)

    return ProjectionGroup(f"open_{writer.events_topic.rpartition('.')[2]}", [ticket_rows], version=version)


def topic_of(writer):
    return f"open-{writer.events_topic}"


def records(env, writer):
    return list(read_range(env.log.settings, topic_of(writer)))


def folded(env, writer):
    found = {}
    for record in records(env, writer):
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = json.loads(record.value)
    return {json.loads(key)["ticket_id"]: row for key, row in found.items()}


def shown(env, name="ticket_rows"):
    with env.store.looking() as connection:
        rows = connection.execute(sa.text(f"SELECT * FROM {name}")).mappings()
        return {row["ticket_id"]: {c: _plain(v) for c, v in row.items()} for row in rows}


def _plain(value):
    return str(value) if isinstance(value, Decimal) else value


def test_a_topic_is_its_view_through_batches_kills_and_cut_overs_and_another_group_reads_it(
    env, environment, writer, monkeypatch, tmp_path
):
    group, metrics = open_tickets(writer), RunMetrics("open")
    outbox = {"group": "open", "topic": topic_of(writer)}
    writer.send(opened(writer, 0, 30))
    rebuild(env, group)
    assert waiting(env, group) == {topic_of(writer): 30}
    with open_runner(env, group, metrics=metrics) as runner:
        assert waiting(env, group) == {topic_of(writer): 0}
        assert folded(env, writer) == shown(env)
        writer.send([writer.event(f"t{number}", Ticket.Closed()) for number in range(5)])
        (report,) = runner.catch_up()
        assert (report.retractions, report.published) == (5, 5)
        assert metrics.registry.get_sample_value("factfold_projection_outbox_rows", outbox) == 0
        assert folded(env, writer) == shown(env)
        writer.send(opened(writer, 30, 5))
        with monkeypatch.context() as patched:
            patched.setattr(ViewPublisher, "publish", die)
            with pytest.raises(Killed):
                runner.catch_up()
    assert len(shown(env)) == 30
    assert len(folded(env, writer)) == 25
    with open_runner(env, group) as runner:
        runner.catch_up()
        assert folded(env, writer) == shown(env)
    assert_placed_by_the_java_clients_rule(env, writer)

    changed = open_tickets(writer, version=2, columns=("ticket_id", "hours"), least=2)
    writer.send([writer.event("t40", Ticket.Opened(customer_id=1, hours=Decimal(3)))])
    rebuild(env, changed)
    before = len(records(env, writer))
    with open_runner(env, changed):
        assert folded(env, writer) == shown(env) == {"t40": {"ticket_id": "t40", "hours": "3.0000"}}
    assert len(records(env, writer)) - before == 31  # every row is gone but one

    follow_by_another_group(environment(SqliteTableStore(tmp_path / "other.db")), env, writer, changed)
    rollback(env, group)
    with open_runner(env, group):
        assert folded(env, writer) == shown(env)


def die(publisher):
    raise Killed


def waiting(env, group):
    (row,) = (row for row in env.store.generations() if row["group"] == group.name and row["status"] == "serving")
    told = CliRunner().invoke(application(), ["projections", "status", group.name, "--views-url", url_of(env)])
    for topic, rows in row["topics"].items():
        assert f"topic {topic}: {rows} rows wait" in told.output
    return row["topics"]


def url_of(env):
    return env.store._engine.url.render_as_string(hide_password=False)


def assert_placed_by_the_java_clients_rule(env, writer):
    found = records(env, writer)
    assert {record.partition for record in found} == {0, 1, 2}
    assert all(record.partition == partition_of(record.key.decode(), 3) for record in found)


def follow_by_another_group(other, env, writer, group):
    """A group of another database over the topic: live, and rebuilt."""
    rows = Table.from_view_topic(TOPIC_ROWS, topic=topic_of(writer))

    @view(key="ticket_id", tables={"rows": rows})
    def copied(rows):
        return rows

    copies = ProjectionGroup(f"copies_{uuid.uuid4().hex[:8]}", [copied])
    rebuild(other, copies)
    with open_runner(other, copies) as reader, open_runner(env, group) as runner:
        assert shown(other, "copied") == shown(env)
        writer.send([writer.event(f"t{number}", Ticket.Opened(customer_id=1, hours=Decimal(5))) for number in (50, 51)])
        writer.send([writer.event("t40", Ticket.Closed())])
        runner.catch_up()
        reader.catch_up()
        assert shown(other, "copied") == shown(env)
        assert set(shown(other, "copied")) == {"t50", "t51"}
    assert all(verdict.equal for verdict in verify(other, copies).values())


def test_a_producer_that_was_followed_by_another_one_publishes_nothing_more(env, writer):
    topics = env.log.view_topics()
    topics.ensure([ViewTopic(topic_of(writer)).spec])
    rows = {topic_of(writer): [{"key": "k", "value": "{}"}]}
    with topics.producer(topic_of(writer)) as first, topics.producer(topic_of(writer)) as second:
        second.send(rows)
        with pytest.raises(ProducerFenced):
            first.send(rows)
    assert len(records(env, writer)) == 1


# ---- Topics of final results in Kafka: each result once, though a publisher is killed, and nothing is ever removed


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
