"""Views on a standalone cluster of three processes: a worker is killed, tasks run twice, and each row is there once."""

from __future__ import annotations

import json
import random

import pytest
import sqlalchemy as sa

from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import changelog_topic, partition_of
from tests.faults.cluster_process import customers, orders
from tests.faults.command_process import CommandProcess
from tests.faults.standalone_cluster import StandaloneCluster
from tests.waiting import wait_until

MODULE, PARTITIONS = "tests.faults.cluster_process", 4
pytestmark = pytest.mark.faults  # starts a cluster: a master and two workers


class Shop:
    """Orders and customers in Kafka as a connector leaves them, and what they are by now."""

    def __init__(self, settings):
        self._producer, self._chance, self._lsn = RecordProducer(settings), random.Random(5), 0
        self.rows = {orders.topic: {}, customers.topic: {}}
        ensure_topics(settings, [changelog_topic(topic, partitions=PARTITIONS) for topic in self.rows])

    def write(self, table, rows):
        """Insert or update rows."""
        records = []
        for row in rows:
            self._lsn += 1
            self.rows[table.topic][row["id"]] = row
            source = {"connector": "postgresql", "lsn": self._lsn, "snapshot": "false"}
            value = json.dumps({"op": "u", "before": None, "after": row, "source": source})
            key = json.dumps({"id": row["id"]})
            place = partition_of(key, PARTITIONS)
            records.append(OutgoingRecord(topic=table.topic, key=key.encode(), value=value.encode(), partition=place))
        self._producer.send(records)

    def orders(self, identities):
        """Order rows of some customer, who may not be there."""
        for identity in identities:
            customer = self._chance.randrange(2_200)
            yield {"id": identity, "customer_id": customer, "amount": self._chance.randrange(100)}

    def expected(self):
        """The view's rows."""
        names = {identity: row["name"] for identity, row in self.rows[customers.topic].items()}
        return {i: (row["amount"], names.get(row["customer_id"])) for i, row in self.rows[orders.topic].items()}


@pytest.fixture
def shop(settings):
    shop = Shop(settings)
    shop.write(customers, ({"id": number, "name": f"customer {number}"} for number in range(2_000)))
    shop.write(orders, shop.orders(range(60_000)))
    return shop


@pytest.fixture
def views(database):
    engine = sa.create_engine(database())
    yield engine
    engine.dispose()


@pytest.fixture
def start(settings, views, tmp_path):
    """A function that starts a command on a cluster."""

    def start(cluster, command):
        variables = {
            "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            "FACTFOLD_VIEWS_URL": views.url.render_as_string(hide_password=False),
            **cluster.settings,
        }
        arguments = ["projections", *command.split(), f"{MODULE}:GROUP"]
        return CommandProcess(arguments, variables, tmp_path / f"{command}.log", module=MODULE)

    return start


def found(views):
    with views.connect() as connection:
        return {row[0]: tuple(row[1:]) for row in connection.execute(sa.text("SELECT id, amount, name FROM bought"))}


def loading(views):
    """Whether executors are writing."""
    with views.connect() as connection:
        known = connection.scalar(sa.text("SELECT to_regclass('factfold.loads')"))
        return bool(known and connection.scalar(sa.text("SELECT count(*) FROM factfold.loads")))


def test_views_are_right_though_a_worker_is_killed_and_tasks_run_twice(shop, views, start, tmp_path):
    with StandaloneCluster(tmp_path, workers=2) as cluster:
        rebuild = start(cluster, "rebuild")
        wait_until(lambda: loading(views), alive=rebuild.require_alive, what="a load")
        assert cluster.cores_used() == 2
        cluster.kill_worker()
        assert rebuild.wait(300) == 0, rebuild.said[-3000:]
        assert cluster.executors_say("behind its commit")
        assert found(views) == shop.expected()
        shop.write(orders, shop.orders(range(30_000, 65_000)))
        run = start(cluster, "run --once")
        assert run.wait(300) == 0, run.said[-3000:]
        assert found(views) == shop.expected()
        verify = start(cluster, "verify")
        assert verify.wait(300) == 0, verify.said[-3000:]
