"""Which topics a process reads: those that its store gives the categories."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventstore import SqlEventStore
from eventstore.processes.running import process_subscription
from tests.unit.eventstore.fulfilment import Fulfilment


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({}, ("order", "payment")),
        ({"source": "/shop"}, ("shop.order", "shop.payment")),
        ({"source": "/shop", "topic_prefix": ""}, ("order", "payment")),
        ({"topic_prefix": "acme-"}, ("acme-order", "acme-payment")),
    ],
)
def test_a_process_reads_the_topics_of_its_store(tmp_path: Path, options: dict[str, str], topics: tuple[str, ...]):
    with SqlEventStore(f"sqlite:///{tmp_path / 'shop.db'}", **options) as store:
        store.create_tables()
        assert process_subscription(store, Fulfilment).topics == topics


def test_a_category_with_a_topic_of_its_own_is_read_from_it(tmp_path: Path):
    with SqlEventStore(f"sqlite:///{tmp_path / 'shop.db'}") as store:
        store.create_tables()
        store.declare_category("order", partitions=4, topic="orders-of-the-shop")
        assert process_subscription(store, Fulfilment).topics == ("orders-of-the-shop", "payment")
