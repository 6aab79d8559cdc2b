"""Records of a topic and events of PostgreSQL, looked at without a group."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Event
from time import sleep
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from eventstore import ANY, Metadata, SqlEventStore
from eventstore.errors import NotFound
from eventstore.inspection.selection import Entry, Selection
from eventstore.inspection.store_log import StoreLog
from eventstore.inspection.tracing import trace
from eventstore.kafka.entries import TopicLog
from factfold.cli.entry import application
from tests.errors import raises
from tests.integration.payments_topic import PaymentsTopic
from tests.ledger import Payment


@pytest.fixture
def log(payments: PaymentsTopic) -> Iterator[TopicLog]:
    with TopicLog(payments.name, payments.settings) as opened:
        yield opened


def amounts(entries: list[Entry]) -> list[int]:
    return [entry.data["amount"] for entry in entries]


def test_the_last_records_of_all_partitions_are_shown_in_the_order_of_their_times_and_chosen_by_them(
    payments: PaymentsTopic, log: TopicLog
) -> None:
    for amount in range(6):
        payments.receive([amount])
        sleep(0.002)  # times of records are whole milliseconds
    assert amounts(log.last(Selection(), limit=4)) == [2, 3, 4, 5]
    assert amounts(log.last(Selection(), limit=0)) == []
    now = datetime.now(UTC)
    assert len(log.last(Selection(since=now - timedelta(hours=1)), limit=9)) == 6
    assert log.last(Selection(since=now + timedelta(hours=1)), limit=9) == []
    assert log.last(Selection(until=now - timedelta(hours=1)), limit=9) == []


def test_records_behind_many_others_are_reached(payments: PaymentsTopic, log: TopicLog) -> None:
    """Windows before the end grow until there are enough, or the partition's beginning is reached."""
    wanted = payments.record(Payment.Refunded(amount=7), partition=1, ce_correlationid="talk")
    payments.put([wanted])
    payments.receive(range(300), partition=1)
    for selection in (
        Selection(types=("payment.refunded",)),
        Selection(streams=("payment-7",), types=("payment.refunded",)),
        Selection(correlation_id="talk"),
    ):
        (found,) = log.last(selection, limit=5)
        assert (found.event and found.event.type, found.data) == ("payment.refunded", {"amount": 7})
        assert amounts(list(log.read(selection))) == [7]


def test_a_topic_is_followed_from_its_last_records_on(payments: PaymentsTopic, log: TopicLog) -> None:
    payments.receive([1, 2], partition=0)
    stop = Event()
    followed = log.follow(Selection(types=("payment.received",)), limit=1, stop=stop)
    assert amounts([next(followed)]) == [2]
    payments.receive([3, 4], partition=0)
    assert amounts(list(itertools.islice(followed, 2))) == [3, 4]
    stop.set()
    assert list(followed) == []


def test_a_record_is_found_by_its_place_and_an_event_by_its_id(payments: PaymentsTopic, log: TopicLog) -> None:
    (sent,) = payments.receive([5], partition=2)
    assert log.at(2, 0).data == {"amount": 5}
    found = log.find(UUID(dict(sent.headers)["ce_id"].decode()))  # type: ignore[union-attr]
    assert found is not None
    assert found.place == f"{payments.name}[2]@0"
    for partition, offset in ((2, 1), (9, 0)):
        with raises(NotFound, code="events-not-found", match="holds no record"):
            log.at(partition, offset)
    assert log.find(UUID(int=0)) is None


def test_the_commands_read_topics(payments: PaymentsTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", payments.settings.kafka.bootstrap_servers)
    payments.put(
        [payments.record(Payment.Received(amount=3), partition=1, ce_correlationid="talk", ce_causationid="c")]
    )

    def run(*words: str) -> dict[str, Any]:
        done = CliRunner().invoke(application(), [*words, "--topic", payments.name, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    assert run("events", "tail")["data"] == {"amount": 3}
    assert run("events", "show", "1@0")["headers"]["ce_correlationid"] == "talk"
    assert [step["kind"] for step in run("trace", "talk")["steps"]] == ["command", "event"]


def test_postgresql_selects_and_follows_as_sqlite_does(database: Any) -> None:
    with SqlEventStore(database()) as store:
        store.create_tables()
        for amount in range(3):
            store.append(f"payment-{amount}", [Payment.Received(amount=amount)], expected=ANY,
                         metadata=Metadata(correlation_id=f"talk {amount % 2}"))  # fmt: skip
        log, now = StoreLog(store), datetime.now(UTC)
        assert amounts(log.last(Selection(until=now), limit=2)) == [1, 2]
        assert amounts(log.last(Selection(since=now + timedelta(hours=1)), limit=2)) == []
        assert amounts(list(log.read(Selection(streams=("payment-0", "payment-2"), from_version=0)))) == [0, 2]
        assert [step.kind for step in trace("talk 0", [log]).steps] == ["event", "event"]
        stop = Event()
        followed = log.follow(Selection(correlation_id="talk 1"), limit=5, stop=stop)
        assert amounts([next(followed)]) == [1]
        store.append(
            "payment-9", [Payment.Received(amount=9)], expected=ANY, metadata=Metadata(correlation_id="talk 1")
        )
        assert amounts([next(followed)]) == [9]
        stop.set()
        assert list(followed) == []
