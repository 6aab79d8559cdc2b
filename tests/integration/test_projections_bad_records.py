"""T8, short form: bad records in the middle of good ones; all kept with their cause, and the views as without them."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from eventstore.kafka.producer import OutgoingRecord
from projections import open_runner, rebuild, verify
from projections.batch_size import BatchSize
from projections.errors import UndecodableRecord
from projections.runner import RunnerOptions
from projections.spark import exchange
from projections.tablestore.sqlite import SqliteTableStore
from tests.integration.bad_records import BadRecords, letters, places, require_all_kept
from tests.integration.log_writer import LogWriter
from tests.integration.ticket_history import TicketHistory
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group

AT_ONCE = RunnerOptions(schema_patience=0.0, batch=BatchSize(least=1))


class Road:
    def __init__(self, env, strategy):
        self.env = env
        self.writer = LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)
        self.group = dataclasses.replace(ticket_group(self.writer), bad_records=strategy)
        self.history, self.bad = TicketHistory(self.writer, 8), BadRecords(self.writer)

    def send(self, steps, *bad):
        """Good records with the bad ones spread among them."""
        good = [record for _ in range(steps) for record in self.history.step()]
        for number, record in enumerate(bad):
            good.insert(min(len(good), 3 * number), record)
        self.writer.send(good)

    def rows(self, name):
        with self.env.store.transaction() as connection:
            return {row[0]: tuple(row[1:]) for row in connection.execute(sa.text(f"SELECT * FROM {name}"))}

    def require_views(self, extra=()):
        """The views hold what the history says, and the streams that were repaired."""
        chain, left = self.rows("ticket_chain"), self.rows("ticket_left")
        assert {key: row for key, row in left.items() if key not in extra} == self.history.expected_left()
        assert {key: row for key, row in chain.items() if key not in extra} == self.history.expected_chain()
        assert set(extra) <= set(left)

    def set_aside(self):
        name = f"factfold_{self.group.name}_1"
        table = f"{name}.set_aside" if self.env.store.dialect.has_schemas else f'"{name}$set_aside"'
        with self.env.store.transaction() as connection:
            return connection.execute(sa.text(f"SELECT * FROM {table}")).all()


@pytest.fixture
def road(environment):
    return lambda strategy, store=None: Road(environment(store), strategy)


@pytest.fixture
def by_executors(monkeypatch):
    monkeypatch.setattr(exchange, "DRIVER_ROWS", 3)


def applied(road):
    with open_runner(road.env, road.group, options=AT_ONCE) as runner:
        return runner.catch_up()


def fed(road):
    """Good records, bad ones among good ones, and good ones again; returns the reports of the batches."""
    road.send(20)
    rebuild(road.env, road.group)
    road.send(40, *road.bad.of_events(), *road.bad.of_changes())
    reports = applied(road)
    road.send(10)
    return [*reports, *applied(road)]


def test_dead_letters_hold_every_bad_record_and_the_views_are_as_without_them(road):
    kept = road("dead-letter")
    reports = fed(kept)
    settings, sent = kept.env.log.settings, places(kept.env.log.settings, kept.group.topics)
    require_all_kept(settings, kept.group, sent)
    assert sum(sum(report.set_aside.values()) for report in reports) == len(sent)
    assert {row.offset for row in kept.set_aside()} == {offset for _, _, offset in sent}
    kept.require_views()
    assert all(verdict.equal and verdict.rows for verdict in verify(kept.env, kept.group).values())

    behind = [
        OutgoingRecord(topic=told["topic"], key=record.key, value=record.value)
        for record, told, _ in letters(settings, kept.group)
        if "comes after" in told["message"]
    ]
    kept.writer.send([*kept.bad.repairs(), *behind])
    applied(kept)
    kept.require_views(extra=kept.bad.events)
    assert {row[2] for key, row in kept.rows("ticket_left").items() if key in kept.bad.events} == {"closed"}
    assert all(verdict.equal for verdict in verify(kept.env, kept.group).values())


def test_what_is_skipped_is_noted_and_nothing_is_sent(road, by_executors, tmp_path):
    skipped = road("skip", SqliteTableStore(tmp_path / "views.db"))
    fed(skipped)
    noted = {(row.topic, row.partition, row.offset) for row in skipped.set_aside()}
    assert noted == set(places(skipped.env.log.settings, skipped.group.topics))
    assert all(row.kind and row.message for row in skipped.set_aside())
    assert all(verdict.equal for verdict in verify(skipped.env, skipped.group).values())


def test_the_planted_fault_is_seen_a_runner_that_drops_bad_records_without_a_word(road, monkeypatch):
    mutant = road("dead-letter")
    monkeypatch.setattr("projections.dead_letters.KafkaDeadLetters.send", lambda *_, **__: None)
    fed(mutant)
    settings = mutant.env.log.settings
    with pytest.raises(AssertionError):
        require_all_kept(settings, mutant.group, places(settings, mutant.group.topics))


def test_a_batch_that_ends_before_its_commit_sends_its_dead_letters_again_under_the_same_identity(road, monkeypatch):
    kept = road("dead-letter")
    rebuild(kept.env, kept.group)
    kept.send(3, *kept.bad.of_events())
    with monkeypatch.context() as patched, open_runner(kept.env, kept.group, options=AT_ONCE) as runner:
        patched.setattr("projections.spark.incremental.note_set_aside", crash)
        with pytest.raises(KeyboardInterrupt):
            runner.catch_up()
    assert kept.set_aside() == []
    applied(kept)
    settings, sent = kept.env.log.settings, places(kept.env.log.settings, kept.group.topics)
    require_all_kept(settings, kept.group, sent)
    assert len(list(letters(settings, kept.group))) == 2 * len(sent)


def crash(*_):
    raise KeyboardInterrupt


def test_without_a_strategy_the_run_stops_at_the_offset(road):
    strict = road("fail")
    rebuild(strict.env, strict.group)
    strict.send(3, *strict.bad.of_changes())
    with pytest.raises(UndecodableRecord, match="partition . offset"):
        applied(strict)
    assert strict.rows("ticket_left") == {}
