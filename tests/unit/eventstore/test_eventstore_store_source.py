"""Subscriptions that read the store directly: the same handlers, the checkpoint in the handler's transaction."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from eventstore import ANY, NewEvent, SqlEventStore, Subscriber, queue, subscription
from eventstore.backends.sql.source import Checkpoints, StoreSource
from eventstore.errors import CheckpointMoved, DeclarationError, ForeignRecord, UnknownSchema
from tests.ledger import LEDGER, METADATA, Payment, Refund, amounts
from tests.rows import each_row
from tests.unit.eventstore.handlers import deliver_stored as deliver


class Clock:
    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def store(tmp_path):
    with SqlEventStore(f"sqlite:///{tmp_path}/shop.db", clock=Clock()) as store:
        store.create_tables()
        METADATA.create_all(store.engine)
        yield store


def receive(store, *amounts, stream="payment-1"):
    for amount in amounts:
        store.append(stream, [Payment.Received(amount=amount)], expected=ANY)


def booking(**options):
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        if event.amount < 0:
            raise ValueError("below zero")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription("payment", group="books", **{"backoff": 0.001} | options)(book)


def source_of(store, declared, **options):
    return StoreSource(store, declared, category="payment", **options)


def dead_letters(store):
    with store.engine.connect() as connection:
        return connection.execute(sa.text("select * from factfold_dead_letters")).all()


def test_events_are_delivered_in_order_and_once_over_restarts(store):
    receive(store, 1, 2, 3)
    assert deliver(store, booking(batch=2)).handled == 3
    receive(store, 4)
    assert deliver(store, booking(batch=2)).handled == 1
    assert amounts(store.engine) == [1, 2, 3, 4]


def test_a_subscriber_that_waits_sees_what_is_appended_meanwhile(store):
    declared = booking()
    with Subscriber(declared, source_of(store, declared), engine=store.engine) as subscriber:
        assert subscriber.run_once(timeout=0).records == 0
        receive(store, 5)
        assert subscriber.run_once(timeout=30).handled == 1
        assert subscriber.lag().records == 0


def test_a_branch_passes_by_the_events_of_others(store):
    receive(store, 100, 2000, 300)
    report = deliver(store, booking(), branch=lambda event: event.data["amount"] > 900)
    assert (report.handled, report.skipped) == (1, 2)
    assert amounts(store.engine) == [2000]


def test_an_event_whose_branch_cannot_be_told_is_a_dead_letter_and_the_others_are_handled(store):
    def branch(event):
        if event.data["amount"] == 2:
            raise UnknownSchema("no schema is registered under id 7", remedy="register it")
        return True

    receive(store, 1, 2, 3)
    report = deliver(store, booking(), branch=branch)
    assert (report.handled, report.dead) == (2, 1)
    assert amounts(store.engine) == [1, 3]
    (row,) = dead_letters(store)
    assert (row.stream, row.version, row.error) == ("payment-1", 1, "UnknownSchema")


def test_the_checkpoint_moves_in_the_transaction_of_the_effects(store, monkeypatch):
    """Planted: the checkpoint cannot be written. Then no effect is there either, and all of it arrives again."""
    receive(store, 1, 2)
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "advance", _refuse)
        with pytest.raises(CheckpointMoved):
            deliver(store, booking())
    assert amounts(store.engine) == []
    assert deliver(store, booking()).handled == 2


def _refuse(self, tx, before, after):
    raise CheckpointMoved("no", remedy="none")


def test_a_second_subscriber_of_the_group_finds_the_checkpoint_moved(store):
    receive(store, 1)
    declared = booking()
    with Subscriber(declared, source_of(store, declared), engine=store.engine) as slow:
        deliver(store, booking())
        with pytest.raises(CheckpointMoved, match="another subscriber of group 'books'"):
            slow.run_once(timeout=0)
    assert amounts(store.engine) == [1]


def test_groups_have_checkpoints_of_their_own(store):
    receive(store, 1, 2)
    other = subscription("payment", group="others")(booking().handler)
    assert deliver(store, booking()).handled == deliver(store, other).handled == 2


def test_without_a_transaction_the_checkpoint_moves_afterwards(store):
    seen = []

    def note(event: Payment.Received) -> None:
        seen.append(event.amount)

    declared = subscription("payment", group="notes")(note)
    receive(store, 1, 2)
    assert deliver(store, declared).handled == 2
    assert deliver(store, declared).handled == 0
    assert seen == [1, 2]


def test_an_event_given_up_is_told_of_in_a_table_and_stays_in_the_store(store):
    receive(store, 1, -2, 3)
    report = deliver(store, booking(attempts=2))
    assert (report.handled, report.dead) == (2, 1)
    (row,) = dead_letters(store)
    assert (row.subscriber, row.stream, row.version, row.error, row.message, row.attempts) == (
        "books", "payment-1", 1, "ValueError", "below zero", 2,
    )  # fmt: skip
    assert deliver(store, booking()).records == 0


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (lambda times: "beginning", [1, 2, 3, 4]),
        (lambda times: "end", [4]),
        (lambda times: times[1], [2, 3, 4]),
        (lambda times: times[0] - timedelta(days=1), [1, 2, 3, 4]),
    ],
    ids=["beginning", "end", "a time", "a time before all"],
)
def test_a_new_group_begins_where_the_subscription_starts(store, start, expected):
    receive(store, 1, 2, 3)
    declared = booking(start=start([event.time for event in store.read_all()]))
    Subscriber(declared, source_of(store, declared), engine=store.engine).close()
    receive(store, 4)
    deliver(store, declared)
    assert amounts(store.engine) == expected


DAY = timedelta(days=1)
MOMENT = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([-2, -1, 0, 1], [2, 3]),
        ([-2, 0, -1, 1], [1, 2, 3]),  # a writer's clock was behind: its event comes after one of the moment
        ([-1, 5, -3, -2], [1, 2, 3]),
        ([0, -5, -5, -5], [0, 1, 2, 3]),
        ([-4, -1, -3, -2], []),  # one that is older still is at the end, and nothing of the moment
    ],
)
def test_a_moment_is_the_place_of_its_first_event_whatever_the_clocks_of_writers(store, days, expected):
    for amount, day in enumerate(days):
        with SqlEventStore(store.engine, clock=lambda when=MOMENT + day * DAY: when) as writer:
            receive(writer, amount)
    declared = booking(start=MOMENT)
    deliver(store, declared)
    assert amounts(store.engine) == expected


@pytest.mark.parametrize("start", ["end", datetime(2027, 1, 1, tzinfo=UTC)], ids=["end", "a time"])
def test_a_group_that_started_in_an_empty_category_does_not_start_again_at_a_later_place(store, start):
    declared = booking(start=start)
    Subscriber(declared, source_of(store, declared), engine=store.engine).close()
    receive(store, 1, 2)
    assert deliver(store, declared).handled == 2
    assert amounts(store.engine) == [1, 2]


def test_what_is_left_of_a_halted_batch_is_read_again(store):
    receive(store, 1, 2, 3)
    declared, stop = booking(), threading.Event()

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        declared.handler(event, tx)
        if not stop.is_set():
            stop.set()
            assert halted.wait(30)

    slow = subscription("payment", group="books")(book)
    with Subscriber(slow, source_of(store, slow), engine=store.engine) as subscriber:
        halted = subscriber._halt
        assert subscriber.run(stop=stop).handled == 1
        assert subscriber.lag().records == 2
        assert subscriber.run_once(timeout=0).handled == 2
    assert amounts(store.engine) == [1, 2, 3]


def test_lag_counts_what_waits_and_how_long(store):
    receive(store, 1, 2, 3)
    declared = booking(batch=1)
    with Subscriber(declared, source_of(store, declared), engine=store.engine) as subscriber:
        assert subscriber.lag().records == 3
        subscriber.run_once(timeout=0)
        assert subscriber.lag().records == 2
        assert subscriber.lag().seconds > 0


@pytest.fixture
def of_two_services(store, tmp_path):
    """A store with an event of its own, and an imported one of another service."""
    file = tmp_path / "billing.jsonl"
    with SqlEventStore(f"sqlite:///{tmp_path}/billing.db", source="/billing") as other:
        other.create_tables()
        other.declare_category("payment", partitions=4, topic="payment")
        receive(other, 7, stream="payment-7")
        other.export_file(file)
    with SqlEventStore(store.engine, source="/shop") as shop:
        shop.declare_category("payment", partitions=4, topic="payment")
        receive(shop, 1)
        shop.import_file(file)
        yield shop


@pytest.mark.parametrize(("source", "amounts_of"), [("/shop", [1]), ("/billing", [7]), ("/Shop", []), (None, [1, 7])])
def test_of_a_store_with_events_of_two_services_a_subscription_takes_those_of_its_own(
    of_two_services, source, amounts_of
):
    report = deliver(of_two_services, booking(source=source))
    assert (amounts(of_two_services.engine), report.dead) == (amounts_of, 2 - len(amounts_of))
    for row in dead_letters(of_two_services):
        assert row.error == "ForeignRecord"
        assert row.message.startswith(f"the record is of another service: {source!r} is declared, and the record's")


def test_a_subscription_that_stops_at_an_unreadable_event_stops_at_another_service_s(of_two_services):
    with pytest.raises(ForeignRecord, match="'/billing'") as stopped:
        deliver(of_two_services, booking(source="/shop", unreadable="stop"))
    assert stopped.value.place == "payment-7@0"
    assert amounts(of_two_services.engine) == [1]


@pytest.fixture
def tenants(tmp_path, engine):
    """Two tenants' files, and the database of the one service that handles the events of both."""
    stores = [SqlEventStore(f"sqlite:///{tmp_path}/{name}.db", topic_prefix=f"{name}-") for name in ("acme", "globex")]
    for store in stores:
        store.create_tables()
    yield stores
    for store in stores:
        store.close()


@pytest.mark.parametrize("ids", ["their own", "the same"])
def test_one_subscription_of_two_tenants_has_a_place_and_an_inbox_for_each(tenants, engine, ids):
    same = [uuid.uuid4() for _ in range(3)]
    for number, store in enumerate(tenants):
        for amount, event_id in enumerate(same):
            received = Payment.Received(amount=10 * number + amount)
            store.append("payment-1", [NewEvent(received, id=event_id if ids == "the same" else None)], expected=ANY)
    declared = booking()
    for _ in range(2):
        for store in tenants:
            deliver(store, declared, engine=engine)
    assert amounts(engine) == [0, 1, 2, 10, 11, 12]


def test_a_store_of_its_own_is_kept_under_its_topic_whatever_its_prefix(tmp_path):
    with SqlEventStore(f"sqlite:///{tmp_path}/acme.db", topic_prefix="acme-") as store:
        store.create_tables()
        METADATA.create_all(store.engine)
        receive(store, 1)
        assert deliver(store, booking()).handled == 1
        with store.engine.connect() as connection:
            assert connection.execute(sa.text("select topic from factfold_inbox")).scalars().all() == ["payment"]


# ---- Subscriptions that read several categories of a store directly: one order, a place for each category


def refund(store, *amounts):
    for amount in amounts:
        store.append("refund-1", [Refund.Paid(amount=amount)], expected=ANY)


BOTH = ["payment", "refund"]


def joined(**options):
    def book(event: Payment.Received | Refund.Paid, tx: sa.Connection) -> None:
        if event.amount < 0:
            raise ValueError("below zero")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription(BOTH, group="books", **{"backoff": 0.001} | options)(book)


@pytest.mark.parametrize("batch", [1, 2, 2000])
def test_several_categories_are_read_in_the_order_of_the_store(store, batch):
    receive(store, 1)
    refund(store, 2, 3)
    receive(store, 4)
    assert deliver(store, joined(batch=batch), category=BOTH).handled == 4
    refund(store, 5)
    receive(store, 6)
    assert deliver(store, joined(batch=batch), category=BOTH).handled == 2
    assert amounts(store.engine) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("batch", [1, 2, 2000])
def test_a_category_that_is_named_later_begins_at_its_start_and_the_others_go_on(store, batch):
    """As an existing deployment that reads one more category: its rows stay valid."""
    receive(store, 1)
    refund(store, 2)
    receive(store, 3)
    assert deliver(store, booking()).handled == 2
    receive(store, 4)
    refund(store, 5)
    report = deliver(store, joined(batch=batch), category=BOTH)
    assert (report.handled, report.duplicates) == (3, 0)
    assert amounts(store.engine) == [1, 3, 2, 4, 5]


def test_a_category_that_was_left_out_for_a_while_goes_on_where_it_stood(store):
    receive(store, 1)
    refund(store, 2)
    deliver(store, joined(), category=BOTH)
    refund(store, 3)
    receive(store, 4)
    assert deliver(store, booking()).handled == 1
    assert deliver(store, joined(), category=BOTH).handled == 1
    assert amounts(store.engine) == [1, 2, 4, 3]


def test_dead_letters_lag_and_inbox_are_by_the_category_of_the_event(store):
    receive(store, -1)
    refund(store, -2, 3)
    declared = joined(attempts=1)
    source = StoreSource(store, declared, category=BOTH)
    source.open(lambda: None)
    assert {part.topic: part.records for part in source.lag().partitions} == {"payment": 1, "refund": 2}
    assert deliver(store, declared, category=BOTH).dead == 2
    assert sorted((row.topic, row.stream) for row in dead_letters(store)) == [
        ("payment", "payment-1"),
        ("refund", "refund-1"),
    ]
    assert source.lag().records == 0
    with store.engine.connect() as connection:
        handled = connection.execute(sa.text("select topic from factfold_inbox where outcome = 'handled'")).scalars()
        assert handled.all() == ["refund"]


def test_an_end_is_the_end_of_each_category(store):
    receive(store, 1)
    refund(store, 2)
    declared = joined(start="end")
    with Subscriber(declared, StoreSource(store, declared, category=BOTH), engine=store.engine) as one:
        refund(store, 3)
        receive(store, 4)
        assert one.run_once(timeout=0).handled == 2
    assert amounts(store.engine) == [3, 4]


HANDLER = booking().handler
NO_CATEGORY = [(joined(), category) for category in ("payment", ["payment"], ["payment"] * 2, ["a", "b", "c"], [])]


@each_row(
    ("declared", "category", "cause"),
    [
        *((*one, "the store's categories") for one in NO_CATEGORY),
        (subscription(pattern="p.*", group="g")(HANDLER), "payment", r"topics like p\.\*"),
        (queue("payment", group="desk")(HANDLER), "payment", "a queue, which a store does not have"),
        (booking(retry=[timedelta(seconds=1)]), "payment", "a retry topic, which a store does not have"),
        (booking(start={0: 5}), "payment", "starts at offsets, which a store does not have"),
    ],
)
def test_what_a_store_does_not_have_is_refused(store, declared, category, cause):
    with pytest.raises(DeclarationError, match=cause):
        Subscriber(declared, StoreSource(store, declared, category=category), engine=store.engine)
