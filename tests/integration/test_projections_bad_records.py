"""T8, short form: bad records in the middle of good ones; all kept with their cause, and the views as without them."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import sqlalchemy as sa

from eventstore.kafka.producer import OutgoingRecord
from projections import RunnerOptions, open_runner, rebuild, verify
from tests.integration.bad_records import BadRecords, letters, places, require_all_kept
from tests.integration.log_writer import LogWriter
from tests.integration.ticket_history import TicketHistory
from tests.integration.tickets import CUSTOMERS, REGIONS, Ticket, ticket_group


class Road:
    """Topics of a group that has been built, views that it keeps, and bad records for them."""

    def __init__(self, env, strategy):
        self.env = env
        self.writer = LogWriter(env.log.settings, Ticket, CUSTOMERS, REGIONS)
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
        return places(self.env.log.settings, self.group.topics)

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
        with self.env.store.transaction() as connection:
            return connection.execute(sa.text(f"SELECT * FROM factfold_{self.group.name}_1.set_aside")).all()

    def repair(self):
        """Send the first events of the halted streams as they should have been, and what was kept behind them."""
        behind = [
            OutgoingRecord(topic=told["topic"], key=record.key, value=record.value)
            for record, told, _ in letters(self.env.log.settings, self.group)
            if "comes after" in told["message"]
        ]
        self.writer.send([*self.bad.repairs(), *behind])


@pytest.fixture
def road(environment):
    return lambda strategy: Road(environment(), strategy)


def test_dead_letters_hold_every_bad_record_and_the_views_are_as_without_them(road):
    kept = road("dead-letter")
    with kept.opened() as runner:
        kept.send(20, *kept.bad.of_events(), *kept.bad.of_changes())
        reports = runner.catch_up()
        kept.send(5)
        runner.catch_up()
        sent = kept.sent()
        require_all_kept(kept.env.log.settings, kept.group, sent)
        assert sum(sum(report.set_aside.values()) for report in reports) == len(sent)
        assert {row.offset for row in kept.set_aside()} == {offset for _, _, offset in sent}
        kept.require_views()
        kept.repair()
        runner.catch_up()
    kept.require_views(extra=kept.bad.events)
    assert {row[2] for key, row in kept.rows("ticket_left").items() if key in kept.bad.events} == {"closed"}
    assert all(verdict.equal and verdict.rows for verdict in verify(kept.env, kept.group).values())
    rebuild(kept.env, kept.group)
    kept.require_views(extra=kept.bad.events)


@pytest.mark.faults
def test_repeated_dead_letters_are_one_by_their_source_and_a_runner_that_sends_none_is_seen(road, monkeypatch):
    """The planted fault: a runner that drops what it judged bad without a word."""
    kept = road("dead-letter")
    settings = kept.env.log.settings
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

        monkeypatch.setattr("projections.outputs.dead_letters.KafkaDeadLetters.send", lambda *_, **__: None)
        kept.send(1, *kept.bad.of_changes())
        runner.catch_up()
    assert {row.offset for row in kept.set_aside()} == {offset for _, _, offset in kept.sent()}
    with pytest.raises(AssertionError):
        require_all_kept(settings, kept.group, kept.sent())


def crash(*_):
    raise KeyboardInterrupt
