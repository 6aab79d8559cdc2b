"""Projections and batches that their client cannot unpack: passed over by policy, alike by run, rebuild and verify."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa
import structlog.testing

from projections import ProjectionGroup, Table, open_runner, rebuild, verify, view
from projections.errors import RecordNotUnpacked
from projections.spark.reading.kafka_source import KafkaLog
from tests.integration.bad_records import letters
from tests.integration.log_writer import LogWriter
from tests.integration.packed import TOO_LONG, limited_settings, send_packed
from tests.integration.tickets import CUSTOMERS, Ticket
from tests.tiers import first_of


class Road:
    """A view of customers by a client with a limit; the batches beyond it hold changes that any other client reads."""

    def __init__(self, env, policy):
        self.settings = env.log.settings
        self.free, self.env = env, dataclasses.replace(env, log=KafkaLog(limited_settings(env.log.settings)))
        self.writer = LogWriter(self.settings, Ticket, CUSTOMERS)
        self.topic = self.writer.changes_topics["customers"]
        customers = Table.from_changelog(CUSTOMERS, topic=self.topic)

        def names(customers):
            return customers.select("id", "name")

        self.view = f"names_{self.topic.split('.')[1]}"
        names.__name__ = self.view
        shown = view(key="id", tables={"customers": customers})(names)
        self.group = ProjectionGroup(f"packed_{self.topic.split('.')[1]}", [shown], bad_records=policy)

    def send(self, *ids):
        rows = ({"id": i, "name": f"n{i}", "region_id": None, "note": None, "since": None} for i in ids)
        records = [self.writer.change("customers", "c", row) for row in rows]
        self.writer.send([dataclasses.replace(record, partition=0) for record in records])

    def send_packed(self, key, count):
        row = {"id": key, "name": TOO_LONG.decode(), "region_id": None, "note": None, "since": None}
        values = [self.writer.change("customers", "c", row).value for _ in range(count)]
        send_packed(self.settings, self.topic, values, codec="zstd", key=f'{{"id": {key}}}'.encode())

    def shown(self):
        with self.env.store.transaction() as connection:
            return sorted(connection.scalars(sa.text(f"SELECT id FROM {self.view}")))

    def aside(self, generation):
        with self.env.store.transaction() as connection:
            rows = connection.execute(sa.text(f"SELECT * FROM factfold_{self.group.name}_{generation}.set_aside")).all()
        return sorted((row.topic, row.partition, row.offset, row.kind, row.message) for row in rows)


PASSED = [(1, "1 to 2"), (2, "1 to 2"), (4, "4")]


@pytest.fixture
def road(environment):
    return lambda policy: Road(environment(), policy)


@first_of("policy", "dead-letter", "skip", indirect=False)
def test_exactly_the_records_of_such_batches_are_passed_over_alike_by_run_rebuild_and_verify(road, policy, monkeypatch):
    kept = road(policy)
    kept.send(1)
    rebuild(kept.env, kept.group)
    aside = [
        (kept.topic, 0, offset, "not_unpacked", f"the record is in a batch that cannot be unpacked: offsets {batch}")
        for offset, batch in PASSED
    ]
    with open_runner(kept.env, kept.group) as runner, structlog.testing.capture_logs() as lines:
        kept.send_packed(900, 2)
        kept.send(2)
        kept.send_packed(901, 1)
        kept.send(3)
        reports = runner.catch_up()
    assert kept.shown() == [1, 2, 3]
    assert kept.aside(1) == aside
    assert sum(report.set_aside.get("not_unpacked", 0) for report in reports) == 3
    told = [line for line in lines if line["event"] == "a batch cannot be unpacked"]
    assert [(line["topic"], line["partition"], line["offsets"]) for line in told] == [
        (kept.topic, 0, "1 to 2"),
        (kept.topic, 0, "4"),
    ]
    if policy == "dead-letter":
        sent = [(told["offset"], told["error"], r.key, r.value) for r, told, _ in letters(kept.settings, kept.group)]
        assert sorted(sent) == [(o, "RecordNotUnpacked", None, None) for o in ("1", "4")]

    assert all(verdict.equal for verdict in verify(kept.env, kept.group).values())
    assert rebuild(kept.env, kept.group).serves
    assert (kept.shown(), kept.aside(2)) == ([1, 2, 3], aside)

    # A long log is read by executors, whose client unpacks them: the same records stay out all the same.
    for module in ("projections.spark.reading.records", "projections.spark.bulk"):
        monkeypatch.setattr(f"{module}.are_few", lambda rows: False)
    assert all(verdict.equal for verdict in verify(kept.env, kept.group).values())
    assert rebuild(kept.env, kept.group).serves
    assert (kept.shown(), kept.aside(3)) == ([1, 2, 3], aside)

    monkeypatch.undo()  # and with a client that takes them they are applied
    report = rebuild(kept.free, kept.group)
    assert report.withheld
    assert kept.aside(4) == []


def test_a_group_that_tolerates_none_stops_with_the_place_and_goes_on_once_it_does(road):
    kept = road("fail")
    kept.send(1)
    rebuild(kept.env, kept.group)
    kept.send_packed(900, 2)
    kept.send(2)
    for _ in range(2):  # the second runner finds it in front of it
        with open_runner(kept.env, kept.group) as runner, pytest.raises(RecordNotUnpacked) as refused:
            runner.catch_up()
        assert refused.value.place == f"topic {kept.topic}, partition 0, offsets 1 to 2"
        assert "bad_records" in refused.value.remedy
    with pytest.raises(RecordNotUnpacked):
        rebuild(kept.env, kept.group)
    assert kept.shown() == [1]
    with open_runner(kept.env, dataclasses.replace(kept.group, bad_records="skip")) as runner:
        runner.catch_up()
    assert kept.shown() == [1, 2]


def test_letters_of_other_records_are_sent_around_such_a_batch(road):
    kept = road("dead-letter")
    rebuild(kept.env, kept.group)
    broken = dataclasses.replace(kept.writer.change("customers", "c", {"id": 7}), partition=0, value=b"{")
    kept.writer.send([broken])
    kept.send_packed(900, 2)
    kept.writer.send([broken])
    kept.send(1)
    with open_runner(kept.env, kept.group) as runner:
        runner.catch_up()
    sent = {told["offset"]: record.value for record, told, _ in letters(kept.settings, kept.group)}
    assert sent == {"0": b"{", "1": None, "3": b"{"}
    assert kept.shown() == [1]
