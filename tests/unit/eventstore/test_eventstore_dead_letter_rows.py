"""Each dead letter of a subscription that reads a store has a row of its own."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa

from eventstore import ANY, NewEvent, SqlEventStore, Subscriber, subscription
from eventstore.backends.sql.source import StoreSource
from tests.ledger import Payment
from tests.unit.eventstore.earlier_letters import assert_a_former_table_keeps_its_letters, letters, make

EVENT = uuid.uuid4()


def refusing(topic="payment"):
    @subscription(topic, group="books", attempts=1)
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        raise ValueError("below zero")

    return book


def give_up(store, declared, engine):
    source = StoreSource(store, declared, category="payment", engine=engine)
    with Subscriber(declared, source, engine=engine) as subscriber:
        assert subscriber.run_once(timeout=0).dead == 1


@pytest.fixture
def open_store(tmp_path):
    opened = []

    def create(name, **options):
        opened.append(SqlEventStore(f"sqlite:///{tmp_path}/{name}.db", **options))
        opened[-1].create_tables()
        opened[-1].append("payment-1", [NewEvent(Payment.Received(amount=-1), id=EVENT)], expected=ANY)
        return opened[-1]

    yield create
    for store in opened:
        store.close()


def test_one_event_that_two_tenants_have_is_a_dead_letter_of_each(open_store, engine):
    for tenant in ("acme", "globex"):
        give_up(open_store(tenant, topic_prefix=f"{tenant}-"), refusing(), engine)
    assert [(topic, event) for topic, event, *_ in letters(engine)] == [
        ("payment@acme-", EVENT),
        ("payment@globex-", EVENT),
    ]


def test_one_event_that_a_group_reads_of_two_topics_is_a_dead_letter_of_each(open_store, engine):
    store = open_store("shop")
    for topic in ("payment", "payment.suspicious"):
        give_up(store, refusing(topic), engine)
    assert [topic for topic, *_ in letters(engine)] == ["payment", "payment.suspicious"]


def test_an_event_given_up_again_has_one_dead_letter(open_store, engine):
    store = open_store("shop")
    give_up(store, refusing(), engine)
    with engine.begin() as tx:
        for table in ("factfold_checkpoints", "factfold_inbox"):
            tx.exec_driver_sql(f"delete from {table}")
    give_up(store, refusing(), engine)
    assert len(letters(engine)) == 1


@pytest.mark.parametrize("place", ["a file of its own", "the store's own file"])
def test_a_table_of_an_earlier_release_keeps_its_letters_and_gets_the_key(open_store, engine, place):
    store = open_store("shop")
    engine = engine if place == "a file of its own" else store.engine

    def deliver():
        give_up(store, refusing(), engine)
        return EVENT

    assert_a_former_table_keeps_its_letters(engine, deliver)


def test_a_change_of_the_key_that_is_cut_off_leaves_the_former_table(open_store, engine, monkeypatch):
    store, known = open_store("shop"), uuid.uuid4()
    make(engine, known)
    with monkeypatch.context() as planted:
        planted.setattr(sa.Table, "create", _cut_off)
        with pytest.raises(KeyboardInterrupt):
            give_up(store, refusing(), engine)
    assert [event for _, event, *_ in letters(engine)] == [known]
    give_up(store, refusing(), engine)
    assert {event for _, event, *_ in letters(engine)} == {known, EVENT}


def _cut_off(*_):
    raise KeyboardInterrupt
