"""T8, short form: bad records in the middle of good ones, under each policy of a group, on Kafka and PostgreSQL."""

from __future__ import annotations

import contextlib
import dataclasses
from decimal import Decimal

import pytest
import sqlalchemy as sa

from eventstore.event_types import event_type_of
from eventstore.kafka.admin import end_offsets
from eventstore.kafka.producer import OutgoingRecord
from eventstore.schema_registry import RegisteredSchema
from projections import ProjectionGroup, RunnerOptions, Table, open_runner, rebuild, verify, view
from projections.errors import RecordNotUnpacked, SparkStopped, UndecodableRecord
from projections.spark.reading.kafka_source import KafkaLog
from tests.integration.bad_records import BadRecords, letters, places, require_all_kept
from tests.integration.late_events import Late
from tests.integration.log_writer import LogWriter
from tests.integration.packed import TOO_LONG, limited_settings, send_packed
from tests.integration.ticket_history import TicketHistory, view_rows
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group


class Road:
    """Topics of a group that has been built, views that it keeps, and bad records for them."""

    def __init__(self, env, strategy, *, settings=None):
        self.env, self.settings = env, settings or env.log.settings
        self.writer = LogWriter(self.settings, Ticket, CUSTOMERS, REGIONS)
        self.group = dataclasses.replace(ticket_group(self.writer), bad_records=strategy)
        self.history, self.bad = TicketHistory(self.writer, 8), BadRecords(self.writer)
        self.send(10)
        rebuild(env, self.group)

    def send(self, steps, *bad):
        """Good records with the bad ones spread among them."""
        good = [record for _ in range(steps) for record in self.history.step()]
        for number, record in enumerate(bad):
            good.insert(min(len(good), 3 * number), record)
        self.writer.send(good)

    @contextlib.contextmanager
    def opened(self):
        with open_runner(self.env, self.group, options=RunnerOptions(schema_patience=0.0)) as runner:
            yield runner

    def sent(self):
        return places(self.settings, self.group.topics)

    def send_packed(self, count):
        """Changes of a customer in one batch that a client with a limit cannot unpack; returns their offsets."""
        topic = self.writer.changes_topics["customers"]
        row = {"id": 900, "name": TOO_LONG.decode(), "region_id": None, "note": None, "since": None}
        values = [self.writer.change("customers", "u", row).value for _ in range(count)]
        first = end_offsets(self.settings, [topic])[topic][0]
        send_packed(self.settings, topic, values, codec="zstd", key=b'{"id": 900}')
        return list(range(first, first + count))

    def require_views(self, extra=()):
        """The views hold what the history says, and the streams that were repaired."""
        chain, left = view_rows(self.env, "ticket_chain"), view_rows(self.env, "ticket_left")
        assert {key: row for key, row in left.items() if key not in extra} == self.history.expected_left()
        assert {key: row for key, row in chain.items() if key not in extra} == self.history.expected_chain()
        assert set(extra) <= set(left)

    def set_aside(self, generation=1):
        table = f"factfold_{self.group.name}_{generation}.set_aside"
        with self.env.store.transaction() as connection:
            return connection.execute(sa.text(f'SELECT * FROM {table} ORDER BY topic, partition, "offset"')).all()

    def repair(self):
        """Send the first events of the halted streams as they should have been, and what was kept behind them."""
        behind = [
            OutgoingRecord(topic=told["topic"], key=record.key, value=record.value)
            for record, told, _ in letters(self.settings, self.group)
            if "comes after" in told["message"]
        ]
        self.writer.send([*self.bad.repairs(), *behind])


@pytest.fixture
def road(environment):
    return lambda strategy: Road(environment(), strategy)


def test_a_bad_record_stops_the_run_at_its_place_and_the_run_goes_on_where_it_is_skipped(road):
    kept = road("fail")
    bad, *_ = kept.bad.of_events()
    before = view_rows(kept.env, "ticket_left")
    with kept.opened() as runner:
        progress = runner.progress
        kept.send(5, bad)
        with pytest.raises(UndecodableRecord, match="does not fit its schema") as caught:
            runner.run_once()
        assert runner.progress == progress
    assert caught.value.remedy
    assert caught.value.place.startswith(f"topic {bad.topic}, partition {bad.partition}, offset ")
    with pytest.raises(UndecodableRecord):
        rebuild(kept.env, kept.group)
    assert view_rows(kept.env, "ticket_left") == before
    kept.group = dataclasses.replace(kept.group, bad_records="skip")
    with kept.opened() as runner:
        runner.catch_up()
    kept.require_views()
    assert [row.kind for row in kept.set_aside()] == ["bad_avro"]


def test_dead_letters_hold_every_bad_record_and_the_views_are_as_without_them(road):
    kept = road("dead-letter")
    with kept.opened() as runner:
        kept.send(20, *kept.bad.of_events(), *kept.bad.of_changes())
        reports = runner.catch_up()
        kept.send(5)
        runner.catch_up()
        sent = kept.sent()
        require_all_kept(kept.settings, kept.group, sent)
        assert sum(sum(report.set_aside.values()) for report in reports) == len(sent)
        assert {row.offset for row in kept.set_aside()} == {offset for _, _, offset in sent}
        kept.require_views()
        kept.repair()
        runner.catch_up()
    kept.require_views(extra=kept.bad.events)
    assert {row[2] for key, row in view_rows(kept.env, "ticket_left").items() if key in kept.bad.events} == {"closed"}
    assert all(verdict.equal and verdict.rows for verdict in verify(kept.env, kept.group).values())
    rebuild(kept.env, kept.group)
    kept.require_views(extra=kept.bad.events)


@pytest.mark.faults
def test_repeated_dead_letters_are_one_by_their_source_and_a_runner_that_sends_none_is_seen(road, monkeypatch):
    """The planted fault: a runner that drops what it judged bad without a word."""
    kept = road("dead-letter")
    settings = kept.settings
    kept.send(1, *kept.bad.of_events())
    with kept.opened() as runner:
        with monkeypatch.context() as patched:
            patched.setattr("projections.spark.live.incremental.note_set_aside", crash)
            with pytest.raises(KeyboardInterrupt):
                runner.run_once()
        assert kept.set_aside() == []
        runner.catch_up()
        require_all_kept(settings, kept.group, sent := kept.sent())
        assert len(list(letters(settings, kept.group))) == 2 * len(sent)

        monkeypatch.setattr("projections.outputs.kafka.KafkaDeadLetters.send", lambda *_, **__: None)
        kept.send(1, *kept.bad.of_changes())
        runner.catch_up()
    assert {row.offset for row in kept.set_aside()} == {offset for _, _, offset in kept.sent()}
    with pytest.raises(AssertionError):
        require_all_kept(settings, kept.group, kept.sent())


def crash(*_):
    raise KeyboardInterrupt


def test_batches_that_a_client_cannot_unpack_are_passed_over_alike_by_run_rebuild_and_verify(environment, monkeypatch):
    free = environment()
    settings = free.log.settings
    limited = dataclasses.replace(free, log=KafkaLog(limited_settings(settings)))
    kept = Road(limited, "dead-letter", settings=settings)
    with kept.opened() as runner:
        first = kept.send_packed(2)
        kept.writer.send([kept.writer.event("packed", Ticket.Opened(customer_id=900, hours=Decimal(1)))])
        kept.send(5)
        second = kept.send_packed(1)
        kept.send(5)
        reports = runner.catch_up()
    assert sum(report.set_aside.get("not_unpacked", 0) for report in reports) == 3

    def require_passed_over(generation):
        kept.require_views(extra={"packed"})
        found = [(row.offset, row.kind) for row in kept.set_aside(generation)]
        assert found == [(offset, "not_unpacked") for offset in (*first, *second)]

    require_passed_over(1)
    assert all(verdict.equal for verdict in verify(kept.env, kept.group).values())
    sent = sorted((int(told["offset"]), told["error"], r.value) for r, told, _ in letters(settings, kept.group))
    assert sent == [(batch[0], "RecordNotUnpacked", None) for batch in (first, second)]
    assert rebuild(kept.env, kept.group).serves
    require_passed_over(2)
    # A long log is read by executors, whose client unpacks them: the same records stay out all the same.
    with monkeypatch.context() as patched:
        for module in ("projections.spark.reading.records", "projections.spark.bulk"):
            patched.setattr(f"{module}.are_few", lambda rows: False)
        assert rebuild(kept.env, kept.group).serves
        require_passed_over(3)
    assert rebuild(free, kept.group).withheld  # with a client that takes them they are applied
    assert kept.set_aside(4) == []


def test_a_build_whose_spark_ended_looks_first_for_what_unpacks_to_too_much(environment, monkeypatch):
    free = environment()
    limited = dataclasses.replace(free, log=KafkaLog(limited_settings(free.log.settings)))
    kept = Road(limited, "dead-letter", settings=free.log.settings)
    packed = kept.send_packed(2)
    for module in ("projections.spark.reading.records", "projections.spark.bulk"):
        monkeypatch.setattr(f"{module}.are_few", lambda rows: False)  # executors read, whose client has no limit

    def build_again(strategy, version):
        group = dataclasses.replace(kept.group, bad_records=strategy, version=version)
        with monkeypatch.context() as patched:
            patched.setattr("projections.lifecycle.building.bad_records", end_spark)
            with pytest.raises(SparkStopped):
                rebuild(limited, group)
        return rebuild(limited, group)

    with pytest.raises(RecordNotUnpacked, match=f"from offset {packed[0]} of partition 0"):
        build_again("fail", 2)
    assert build_again("dead-letter", 3).generation > 1
    assert [row.offset for row in kept.set_aside(build_again("skip", 4).generation)] == packed


def end_spark(*_, **__):
    raise SparkStopped("Spark's JVM no longer answers", remedy="start again")


def test_a_schema_that_is_registered_while_the_run_goes_on_is_looked_up(environment):
    env = environment()
    late = LogWriter(env.log.settings, Late)
    evolved = Table.from_events(Late, key="late_id", topic=late.events_topic)

    @view(key="late_id", tables={"evolved": evolved})
    def late_rows(evolved):
        return evolved

    group = ProjectionGroup(f"late_{late.events_topic.rpartition('.')[2]}", [late_rows])
    late.send([late.event("a", Late.Began(note="x"))])
    rebuild(env, group)
    known = event_type_of(Late.Began).schema
    newer = RegisteredSchema.of({**known, "fields": [*known["fields"], {"name": "added", "type": "long"}]})
    with open_runner(env, group) as runner:
        late.send([late.schema(newer), late.raw_event("b", newer, {"note": "y", "added": 7})])
        runner.catch_up()
    with env.store.transaction() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM late_rows")) == 2
