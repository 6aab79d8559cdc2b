"""Events of a store are delivered again to one subscription: although its inbox knows them, and to no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, RecordedEvent, SqlEventStore, Subscriber, Subscription, event, subscription
from eventstore.backends.sql import reading, replaying
from eventstore.backends.sql.process_rows import SqlInboxes
from eventstore.backends.sql.replaying import Replay, parse_position
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import (
    DeclarationError,
    ForeignRecord,
    InvalidArgument,
    InvalidIdentifier,
    StoreUnavailable,
    SubscriptionError,
)
from eventstore.identifiers import Position
from eventstore.inspection.selection import Selection
from tests.errors import raises
from tests.ledger import Payment
from tests.unit.eventstore.handlers import deliver_stored

METADATA = sa.MetaData()
SEEN = sa.Table("seen", METADATA, sa.Column("stream", sa.Text), sa.Column("amount", sa.Integer))


class Order(Aggregate):
    @event
    class Placed:
        amount: int

    @event
    class Shipped:
        by: str


@pytest.fixture
def store(store_url: str) -> Iterator[SqlEventStore]:
    with SqlEventStore(store_url) as opened:
        METADATA.create_all(opened.engine)
        for stream in ("order-o1", "order-o2"):
            opened.append(stream, [Order.Placed(amount=n) for n in (1, 2, 3)], expected=ANY)
        opened.append("order-o1", [Order.Shipped(by="Post")], expected=ANY)
        yield opened


def booking(fails_at: int | None = None, **options: Any) -> Subscription[..., None]:
    @subscription("order", group="booking", **options)
    def book(event: Order.Placed, recorded: RecordedEvent, tx: sa.Connection) -> None:
        if event.amount == fails_at:
            raise RuntimeError("no room")
        tx.execute(sa.insert(SEEN).values(stream=recorded.stream, amount=event.amount))

    return book


def handled(store: SqlEventStore, declared: Subscription[..., None]) -> None:
    """Deliver everything as usual, and forget the effects."""
    deliver_stored(store, declared, category="order")
    with store.engine.begin() as tx:
        tx.execute(sa.delete(SEEN))


def effects(store: SqlEventStore) -> list[tuple[str, int]]:
    with store.engine.connect() as connection:
        return [(stream, amount) for stream, amount in connection.execute(sa.select(SEEN))]


def inbox(store: SqlEventStore) -> dict[tuple[str, int], str]:
    """Where each claimed event stands in its stream, and its outcome."""
    events = list(store.read_all())
    known = SqlInboxes(store.engine).reactions([one.id for one in events])
    return {(one.stream, one.version): known[one.id][0].outcome for one in events if one.id in known}


def test_chosen_events_run_through_the_handler_again_although_its_inbox_knows_them(store: SqlEventStore) -> None:
    declared = booking()
    handled(store, declared)
    report = Replay(store, declared, Selection(streams=("order-o1",), from_version=1)).run()
    assert (report.handled, report.overtaken) == (2, 0)
    assert effects(store) == [("order-o1", 2), ("order-o1", 3)]


def test_an_event_that_was_replayed_first_is_not_handled_when_its_turn_comes(store: SqlEventStore) -> None:
    declared = booking()
    Replay(store, declared, Selection(streams=("order-o2",))).run()
    report = deliver_stored(store, declared, category="order")
    assert (report.handled, report.duplicates) == (3, 3)
    assert len(effects(store)) == 6


def test_a_plan_counts_calls_nothing_and_makes_no_tables(store: SqlEventStore) -> None:
    declared = booking()
    Replay(store, declared, Selection(streams=("order-o1",))).plan()
    assert not sa.inspect(store.engine).has_table("factfold_inbox")
    handled(store, declared)
    store.append("order-o3", [Order.Placed(amount=9)], expected=ANY)
    plan = Replay(store, declared, Selection(categories=("order",))).plan(show=2)
    assert (plan.events, plan.known, plan.types) == (7, 6, {"order.placed": 7})
    assert [(one.stream, one.version) for one in plan.first] == [("order-o1", 0), ("order-o1", 1)]
    assert effects(store) == []


def test_a_replay_ends_at_a_failure_and_says_where_to_go_on(store: SqlEventStore) -> None:
    handled(store, booking())
    before = inbox(store)
    with pytest.raises(SubscriptionError, match=r"RuntimeError: no room \(2 events were handled") as failed:
        Replay(store, booking(fails_at=3), Selection(streams=("order-o1",))).run()
    assert failed.value.place == "order-o1@2"
    assert effects(store) == [("order-o1", 1), ("order-o1", 2)]
    assert inbox(store) == before
    after = parse_position(failed.value.remedy.rpartition(" ")[2])
    Replay(store, booking(), Selection(streams=("order-o1",)), after=after).run()
    assert effects(store) == [("order-o1", 1), ("order-o1", 2), ("order-o1", 3)]


def test_a_failed_event_that_the_inbox_did_not_know_stays_unknown(store: SqlEventStore) -> None:
    with pytest.raises(SubscriptionError):
        Replay(store, booking(fails_at=2), Selection(streams=("order-o1",))).run()
    assert inbox(store) == {("order-o1", 0): "handled"}


def test_the_place_of_the_group_does_not_move(store: SqlEventStore) -> None:
    declared = booking()
    handled(store, declared)

    def places() -> list[Any]:
        with store.engine.connect() as connection:
            return list(connection.exec_driver_sql("select * from factfold_checkpoints"))

    before = places()
    Replay(store, declared, Selection(streams=("order-o1",))).run()
    assert places() == before != []


def test_a_handler_of_lists_gets_a_batch(store: SqlEventStore) -> None:
    batches: list[list[int]] = []

    @subscription("order", group="lists", batch=4)
    def book(events: list[Order.Placed], tx: sa.Connection) -> None:
        batches.append([one.amount for one in events])

    Replay(store, book, Selection(categories=("order",))).run()
    assert batches == [[1, 2, 3, 1], [2, 3]]


def test_a_handler_without_a_transaction_is_called_again(store: SqlEventStore) -> None:
    calls: list[str] = []

    @subscription("order", group="mails")
    def mail(event: Order.Shipped) -> None:
        calls.append(event.by)

    assert Replay(store, mail, Selection(streams=("order-o1",))).run().handled == 1
    assert calls == ["Post"]


def test_events_that_are_appended_meanwhile_are_left_to_the_subscriber(store, monkeypatch):
    monkeypatch.setattr(reading, "_PAGE", 2)  # the store is read again and again while the handler appends

    @subscription("order", group="echo")
    def echo(event: Order.Placed) -> None:
        if event.amount < 100:
            store.append("order-o9", [Order.Placed(amount=event.amount + 100)], expected=ANY)

    monkeypatch.setattr(replaying, "_PAGE", 1)
    assert Replay(store, echo, Selection(categories=("order",))).run().handled == 6


def test_a_handler_that_ends_its_transaction_ends_the_replay(store: SqlEventStore) -> None:
    @subscription("order", group="booking")
    def book(event: Order.Placed, tx: sa.Connection) -> None:
        tx.execute(sa.insert(SEEN).values(stream="x", amount=event.amount))
        driver: Any = tx.connection.driver_connection
        driver.commit()

    with raises(SubscriptionError, code="transaction-broken"):
        Replay(store, book, Selection(streams=("order-o1",))).run()
    assert effects(store) == [("x", 1)]


def coroutine() -> Subscription[..., Any]:
    @subscription("order", group="loop")
    async def review(event: Order.Placed) -> None: ...

    return review


def elsewhere() -> Subscription[..., Any]:
    @subscription("payment.suspicious", group="fraud")
    def review(event: Payment.Received) -> None: ...

    return review


@pytest.mark.parametrize(
    ("declared", "selection", "cause"),
    [
        (coroutine, Selection(), "is a coroutine function"),
        (elsewhere, Selection(), r"reads payment\.suspicious, and this store publishes order"),
        (booking, Selection(streams=("payment-p1",)), "takes no events of payment-p1"),
        (booking, Selection(types=("order.shipped",)), r"takes no events of order\.shipped"),
        (booking, Selection(categories=("payment",)), "takes no events of payment"),
    ],
)
def test_what_the_handler_cannot_take_is_refused_before_anything_is_read(store, declared, selection, cause):
    with pytest.raises(DeclarationError, match=cause):
        Replay(store, declared(), selection)


def test_a_branch_takes_the_events_that_it_says_yes_to(store: SqlEventStore) -> None:
    store.append("payment-p1", [Payment.Received(amount=n) for n in (1, 500)], expected=ANY)
    seen: list[int] = []

    @subscription("payment.suspicious", group="fraud")
    def review(event: Payment.Received) -> None:
        seen.append(event.amount)

    chosen = Selection(streams=("payment-p1",))
    Replay(store, review, chosen, category="payment", branch=lambda one: one.data["amount"] > 100).run()
    assert seen == [500]


def test_an_event_of_another_service_ends_the_replay(store: SqlEventStore) -> None:
    with pytest.raises(ForeignRecord, match="'/shop' is declared"):
        Replay(store, booking(source="/shop"), Selection(streams=("order-o1",)), category="order").run()


def test_positions_are_read_as_they_are_told() -> None:
    assert parse_position("12:7") == Position(12, 7)
    with pytest.raises(DeclarationError, match="'7' is no position"):
        parse_position("7")


@pytest.mark.parametrize("bounds", [{"from_version": -1}, {"to_version": -1}, {"from_version": 3, "to_version": 2}])
def test_versions_below_zero_or_in_the_wrong_order_are_refused(bounds: dict[str, int]) -> None:
    with raises(InvalidArgument, code="invalid-bound"):
        Selection(**bounds)  # type: ignore[arg-type]


def test_a_subscription_to_several_topics_gets_its_events_in_the_order_of_the_store(store: SqlEventStore) -> None:
    store.append("payment-p1", [Payment.Received(amount=5)], expected=ANY)
    store.append("order-o1", [Order.Placed(amount=4)], expected=ANY)

    @subscription(["order", "payment"], group="ledger")
    def book(events: list[RecordedEvent], tx: sa.Connection) -> None:
        rows = [{"stream": one.stream, "amount": one.data.get("amount", 0)} for one in events]
        tx.execute(sa.insert(SEEN), rows)

    chosen = Selection(streams=("order-o1", "payment-p1"), from_version=0)
    assert Replay(store, book, chosen).run().handled == 6
    assert effects(store)[-3:] == [("order-o1", 0), ("payment-p1", 5), ("order-o1", 4)]
    known = SqlInboxes(store.engine).reactions([one.id for one in store.read_all()])
    assert sorted({one.topic for found in known.values() for one in found}) == ["order", "payment"]


@pytest.mark.parametrize(("delivered_by_store", "checkpoint_name"), [(True, "acme-order@acme-"), (False, "acme-order")])
def test_an_event_is_claimed_under_the_name_of_the_road_that_delivers_it(tmp_path, delivered_by_store, checkpoint_name):
    """A store whose topics have a prefix, and a handler in a database of its own."""
    elsewhere = sa.create_engine(f"sqlite:///{tmp_path / 'handler.db'}")
    METADATA.create_all(elsewhere)

    @subscription("acme-order", group="booking")
    def book(event: Order.Placed, tx: sa.Connection) -> None: ...

    with SqlEventStore(f"sqlite:///{tmp_path / 'acme.db'}", topic_prefix="acme-") as acme:
        acme.create_tables()
        acme.append("order-o1", [Order.Placed(amount=1)], expected=ANY)
        if delivered_by_store:
            source = StoreSource(acme, book, category="order", engine=elsewhere)
            with Subscriber(book, source, engine=elsewhere) as subscriber:
                subscriber.run_once()
        replay = Replay(acme, book, Selection(streams=("order-o1",)), engine=elsewhere)
        assert replay.plan().known == int(delivered_by_store)
        assert replay.run().handled == 1
        ((reaction,),) = SqlInboxes(elsewhere).reactions([one.id for one in acme.read_all()]).values()
    elsewhere.dispose()
    assert reaction.topic == checkpoint_name


def test_an_event_that_was_given_up_counts_as_handled_after_its_replay(store: SqlEventStore) -> None:
    failing = booking(fails_at=2, attempts=1)
    deliver_stored(store, failing, category="order")
    assert inbox(store)["order-o1", 1] == "dead"
    Replay(store, booking(), Selection(streams=("order-o1",))).run()
    assert inbox(store)["order-o1", 1] == "handled"


def test_a_replay_tells_how_far_it_is(store: SqlEventStore) -> None:
    told: list[int] = []
    Replay(store, booking(), Selection(categories=("order",))).run(
        on_progress=lambda report: told.append(report.handled)
    )
    assert told == [6]


def test_an_error_of_ours_ends_a_replay_as_itself_and_says_how_far_it_came(store: SqlEventStore) -> None:
    @subscription("order", group="loading")
    def load(event: Order.Placed) -> None:
        if event.amount == 2:
            raise StoreUnavailable("the database is away", remedy="start it")

    with pytest.raises(StoreUnavailable) as failed:
        Replay(store, load, Selection(streams=("order-o1",))).run()
    (note,) = failed.value.__notes__
    assert note.startswith("1 events were handled before, and stay so; replay again with --after ")


@pytest.mark.parametrize("streams", [("order",), ("order-\n",)])
def test_a_stream_that_cannot_be_is_refused(store: SqlEventStore, streams: tuple[str, ...]) -> None:
    with pytest.raises(InvalidIdentifier):
        Replay(store, booking(), Selection(streams=streams)).plan()
