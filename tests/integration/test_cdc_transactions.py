"""T2 (b): batches end on transactions of the source: what is read is whole, and no view ever shows half a transfer.

FACTFOLD_KILLS chooses in how many versions a view is looked at, though nothing is killed: in 5 in make test, 200 in
make faults, 2,000 in make faults-full. T2 (a) is tests/faults/test_transfers_balanced.py.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from cdc import ConnectClient, PostgresSource, apply_connector
from cdc.changes.transactions import SourceTransactions
from cdc.source.signals import Signals
from eventstore.kafka.admin import OffsetReader, end_offsets, ensure_topics
from eventstore.kafka.consumer import RangeReader, read_range
from eventstore.settings import Settings
from eventstore.topics import TopicRecord, schemas_topic
from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, view
from tests.integration.conftest import Captured
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "1"))
pytestmark = pytest.mark.kills  # the second test samples what is published; the others are its witnesses
VERSIONS = 5 if KILLS == 1 else 40 * KILLS
ACCOUNTS = 10
SEED = 1494
METADATA = sa.MetaData()
COLUMNS = (("id", sa.Integer), ("cents", sa.BigInteger))
HERE, THERE = (
    sa.Table(name, METADATA, *(sa.Column(n, t, primary_key=n == "id") for n, t in COLUMNS), schema="public")
    for name in ("here", "there")
)


@dataclass
class Bank:
    """Two tables between which money goes to and fro, captured with the marks of their transactions."""

    database: Captured
    source: PostgresSource
    settings: Settings
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))

    @property
    def topics(self) -> list[str]:
        return [self.source.topic("public.here"), self.source.topic("public.there")]

    def transfer(self, accounts: int = 1) -> None:
        """One transaction: what an account gains here it loses there, in two steps so that the topics differ in length.

        As long as each other, batches cut by shares would end at the same changes in both by themselves.
        """
        with self.database.engine.begin() as connection:
            for account in self.chance.sample(range(ACCOUNTS), accounts):
                cents = self.chance.randrange(1, 1_000)
                for table, amount in ((HERE, cents), (THERE, -2 * cents), (THERE, cents)):
                    chosen = table.update().where(table.c.id == account)
                    connection.execute(chosen.values(cents=table.c.cents + amount))

    def group(self, name: str, **options: Any) -> ProjectionGroup:
        here, there = (
            Table.from_changelog(t, topic=topic) for t, topic in zip((HERE, THERE), self.topics, strict=True)
        )

        def balances(here: Any, there: Any) -> Any:
            total = here.cents + there.cents
            return here.join(there, here.id == there.id, "left").select(here.id, here.cents, total.alias("total"))

        balances.__name__ = f"balances_{name}"
        made = view(key="id", tables={"here": here, "there": there})(balances)
        return ProjectionGroup(f"{self.database.name}_{name}", [made], **options)


@pytest.fixture(scope="module")
def bank(captured: Callable[[], Captured], connect: ConnectClient, settings: Settings) -> Bank:
    database = captured()
    METADATA.create_all(database.engine)
    with database.engine.begin() as connection:
        for table in (HERE, THERE):
            connection.execute(table.insert(), [{"id": n, "cents": 0} for n in range(ACCOUNTS)])
    source = database.source(
        tables=("public.here", "public.there"), transactions=True, partitions=2,
        signal_table="public.signals", notifications_topic=f"{database.name}.notifications",
    )  # fmt: skip
    ensure_topics(settings, [*source.topic_specs, schemas_topic()])
    apply_connector(connect, database.prepared(source), source=database.engine)
    return Bank(database, source, settings)


class Reader:
    """Reads batch after batch up to the ends it is given, as a runner does."""

    def __init__(self, bank: Bank, offsets: OffsetReader, boundaries: SourceTransactions, records: RangeReader) -> None:
        self.bank, self.offsets, self.boundaries, self.records = bank, offsets, boundaries, records
        self.at = offsets.beginning_offsets(bank.topics)

    def batch(self, most: int) -> list[TopicRecord]:
        ends = self.boundaries.whole(self.at, self.offsets.end_offsets(self.bank.topics), most=most)
        self.records.seek(self.at)
        found = list(self.records.read_up_to(ends))
        self.at = {topic: dict(parts) for topic, parts in ends.items()}
        return found

    def counts(self, records: list[TopicRecord]) -> dict[str, Counter[str]]:
        """The changes of a batch by transaction and table."""
        found: dict[str, Counter[str]] = {}
        for record in records:
            event = json.loads(record.value) if record.value else {}
            if event.get("transaction"):
                transaction = event["transaction"]["id"].partition(":")[0]
                found.setdefault(transaction, Counter())[f"public.{event['source']['table']}"] += 1
        return found

    def ended(self) -> dict[str, dict[str, int]]:
        """How many changes each ended transaction has in each table, by the marks."""
        records = read_range(self.bank.settings, self.bank.source.transaction_topic)
        ends = [mark for mark in (json.loads(record.value) for record in records) if mark["status"] == "END"]
        return {
            end["id"].partition(":")[0]: {one["data_collection"]: one["event_count"] for one in end["data_collections"]}
            for end in ends
        }


@pytest.fixture
def reader(bank: Bank) -> Iterator[Reader]:
    boundaries = SourceTransactions(bank.settings, bank.source.topic_prefix, bank.topics)
    with OffsetReader(bank.settings) as offsets, boundaries, RangeReader(bank.settings) as records:
        yield Reader(bank, offsets, boundaries, records)


def until_current(reader: Reader, most: int, *, changes: int) -> Iterator[list[TopicRecord]]:
    """Batches, until so many changes have come."""
    seen = 0
    while seen < changes:
        batch = wait_until(partial(reader.batch, most), what=f"more than {seen} of {changes} changes")
        seen += sum(counts.total() for counts in reader.counts(batch).values())
        yield batch


@pytest.mark.parametrize("most", [7, 100_000])
def test_every_batch_holds_whole_transactions_while_they_are_written(bank, reader, most):
    reader.at = reader.offsets.end_offsets(bank.topics)
    written = threading.Thread(target=lambda: [bank.transfer(accounts=1 + n % 4) for n in range(30)])
    written.start()
    changes = sum(3 * (1 + n % 4) for n in range(30))
    batches = list(until_current(reader, most, changes=changes))
    written.join()
    ended = reader.ended()
    assert len(batches) > 1 or most > changes  # the quickest reader finds all at once
    for batch in batches:
        for transaction, counts in reader.counts(batch).items():
            assert counts == ended[transaction]
        rows = reader.counts(batch)
        assert sum(counts.total() for counts in rows.values()) <= most or len(rows) == 1


def test_a_transaction_longer_than_one_poll_of_the_connector_comes_whole(bank, reader):
    reader.at = reader.offsets.end_offsets(bank.topics)
    many = 3_000  # more than Debezium's 2,048 a poll: several Kafka transactions
    rows = ", ".join(f"({1_000 + n}, 5)" for n in range(many))
    bank.database.run(
        f"INSERT INTO here VALUES {rows}", "INSERT INTO there SELECT id, -cents FROM here WHERE id >= 1000"
    )
    (batch,) = [b for b in until_current(reader, 100, changes=2 * many) if b]
    assert list(reader.counts(batch).values()) == [Counter({"public.here": many, "public.there": many})]
    bank.database.run("DELETE FROM here WHERE id >= 1000", "DELETE FROM there WHERE id >= 1000")
    (gone,) = [b for b in until_current(reader, 100, changes=2 * many) if b]
    assert sum(record.value is None for record in gone) == 2 * many


def remove_records(settings: Settings, topic: str) -> None:
    """Remove every record, as retention does in time."""
    admin = AdminClient(settings.kafka.librdkafka())
    (ends,) = end_offsets(settings, [topic]).values()
    for future in admin.delete_records([TopicPartition(topic, p, end) for p, end in ends.items()]).values():
        future.result(10)


def wrong_sums(environment: Environment, name: str) -> int:
    with environment.store.transaction() as connection:
        return int(
            connection.scalar(sa.text(f"SELECT count(*) FROM balances_{name} WHERE total IS DISTINCT FROM 0")) or 0
        )


def sampled(
    bank: Bank, environment: Environment, group: ProjectionGroup, name: str, *, transfers: int = 5
) -> list[int]:
    """Rows that do not sum to 0, in every version that is published of so many transfers, each a batch of its own."""
    rebuild(environment, group)
    samples = [wrong_sums(environment, name)]
    with open_runner(environment, group) as runner:
        for _ in range(transfers):
            bank.transfer(accounts=2)
        with bank.database.engine.connect() as connection:
            goal = sorted(tuple(row) for row in connection.execute(sa.select(HERE)))
        while shown(environment, name) != goal:
            wait_until(partial(runner.run_once, max_records=5), what="a batch")
            samples.append(wrong_sums(environment, name))
    return samples


def shown(environment: Environment, name: str) -> list[tuple[int, int]]:
    with environment.store.transaction() as connection:
        return sorted(tuple(row) for row in connection.execute(sa.text(f"SELECT id, cents FROM balances_{name}")))


@pytest.mark.timeout(max(300, 2 * VERSIONS))
def test_no_version_of_a_view_shows_half_a_transfer(bank, environment):
    views, group = environment(), bank.group("whole", transactions=(bank.source.topic_prefix,))
    samples = sampled(bank, views, group, "whole", transfers=VERSIONS)
    assert len(samples) > VERSIONS
    assert set(samples) == {0}
    before = shown(views, "whole")
    remove_records(bank.settings, bank.source.transaction_topic)
    rebuild(views, group)
    assert shown(views, "whole") == before


def test_rows_of_a_snapshot_come_though_no_transaction_follows(bank, reader, connect):
    reader.at = reader.offsets.end_offsets(bank.topics)
    signals = Signals(bank.database.engine, bank.source, bank.settings, connect)
    for ask in (signals.snapshot, signals.blocking_snapshot):
        ask(["public.here", "public.there"]).wait()
        read: list[TopicRecord] = []
        while len(read) < 2 * ACCOUNTS:
            read += wait_until(partial(reader.batch, 100), what=f"more than {len(read)} rows")
        assert {json.loads(record.value or b"")["op"] for record in read} == {"r"}
