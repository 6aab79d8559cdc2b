"""What a subscription may look like, and what is refused while it is being declared."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from confluent_kafka import IllegalStateException
from sqlalchemy import Connection

from eventstore import Aggregate, Delivery, RecordedEvent, Settings, event, queue, subscription
from eventstore.errors import DeclarationError, InvalidIdentifier, SubscriptionError
from eventstore.kafka.arrivals import KafkaArrival
from eventstore.kafka.share_source import ShareSource, group_settings, lock_seconds
from tests.ledger import LEDGER, Payment, amounts
from tests.orders import Order
from tests.rows import each_row
from tests.unit.eventstore.client_records import Message
from tests.unit.eventstore.handlers import deliver
from tests.unit.eventstore.memory_source import MemorySource, arrivals


@event(name="payment.received")
class Impostor:
    amount: int


def _declare(handler, **options):
    return subscription("payment.suspicious", **{"group": "fraud"} | options)(handler)


def test_a_subscribed_function_is_still_called_as_before():
    @subscription("payment.suspicious", group="fraud")
    def double(event: Payment.Received) -> int:
        return event.amount * 2

    assert double(Payment.Received(amount=4)) == 8


def _one(event: Payment.Received) -> None: ...
def _several(event: Payment.Received | Payment.Refunded) -> None: ...
def _everything(event: RecordedEvent) -> None: ...
def _many(events: list[Payment.Received | Payment.Refunded]) -> None: ...
def _many_recorded(events: list[RecordedEvent]) -> None: ...
def _both(why: RecordedEvent, event: Payment.Received) -> None: ...
def _with_tx(event: Payment.Received, tx: Connection) -> None: ...


@each_row(
    ("handler", "types", "many", "guarantee"),
    [
        (_one, {"payment.received"}, False, "at-least-once"),
        (_several, {"payment.received", "payment.refunded"}, False, "at-least-once"),
        (_everything, None, False, "at-least-once"),
        (_many, {"payment.received", "payment.refunded"}, True, "at-least-once"),
        (_many_recorded, None, True, "at-least-once"),
        (_with_tx, {"payment.received"}, False, "effectively-once"),
    ],
)
def test_the_annotations_say_which_events_are_handed_over_and_how_often(handler, types, many, guarantee):
    declared = _declare(handler)
    found = declared.signature.types
    assert (None if found is None else set(found), declared.signature.many) == (types, many)
    assert declared.guarantee == guarantee
    assert _declare(handler, guarantee="at-least-once").guarantee == "at-least-once"


def test_the_recorded_event_may_come_beside_the_typed_one():
    signature = _declare(_both).signature
    assert signature.arguments("typed", "recorded", None) == {"event": "typed", "why": "recorded"}


def test_classes_of_the_enclosing_function_are_found():
    class Local(Aggregate):
        @event
        class Happened:
            number: int

    @subscription("local", group="g")
    def handler(event: Local.Happened) -> None: ...

    assert list(handler.signature.types) == ["local.happened"]


def _no_annotation(event) -> None: ...
def _no_event(event: int) -> None: ...
def _only_a_transaction(tx: Connection) -> None: ...
def _two_events(a: Payment.Received, b: Payment.Refunded) -> None: ...
def _list_beside_one(a: list[Payment.Received], b: RecordedEvent) -> None: ...
def _twice_the_type(a: Payment.Received | Impostor) -> None: ...
def _anything(*events: Payment.Received) -> None: ...
def _not_there(event: Nowhere) -> None: ...  # noqa: F821


@pytest.mark.parametrize(
    ("handler", "cause"),
    [
        (_no_annotation, "without annotation"),
        (_no_event, "is no event"),
        (_only_a_transaction, "does not take one event"),
        (_two_events, "does not take one event"),
        (_list_beside_one, "a list and a single event"),
        (_twice_the_type, "two classes of one event type"),
        (_anything, "takes \\*events"),
        (_not_there, "cannot be found"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused(handler, cause):
    with pytest.raises(DeclarationError, match=cause) as refused:
        _declare(handler)
    assert refused.value.remedy
    assert refused.value.place


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"guarantee": "exactly-once"}, "'exactly-once' is not known"),
        ({"guarantee": "effectively-once"}, "without a transaction"),
        ({"start": "yesterday"}, "is not a place"),
        ({"start": datetime(2026, 1, 1)}, "is not a place"),
        ({"start": {0: -1}}, "is not a place"),
        ({"unreadable": "ignore"}, "'ignore' is not known"),
        ({"attempts": 0}, "count from 1"),
        ({"batch": 0}, "count from 1"),
        ({"timeout": 0}, "are seconds"),
        ({"remember": timedelta(0)}, "how long the inbox"),
        ({"guarantee": "at-most-once", "attempts": 2}, "with further attempts"),
        ({"guarantee": "at-most-once", "retry": [timedelta(seconds=1)]}, "with further attempts"),
        ({"intake": 1000}, "below a fetch"),
        ({"retry": 10}, "no list of times to wait"),
        ({"retry": [10]}, "no list of times to wait"),
        ({"retry": [timedelta(0)]}, "no list of times to wait"),
        ({"bakcoff": 1}, "no option 'bakcoff'"),
        ({"parallel": 0}, "parallel 0 is no number"),
        ({"parallel": 2, "retry": [timedelta(seconds=1)]}, "keep the order within a stream"),
        ({"parallel": 2, "guarantee": "at-most-once"}, "are not at most once"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options, cause):
    with pytest.raises(DeclarationError, match=cause):
        _declare(_one, **options)


@pytest.mark.parametrize("start", ["beginning", "end", datetime(2026, 1, 1, tzinfo=UTC), {0: 5, 1: 0}])
def test_a_subscription_starts_at_either_end_a_time_or_offsets(start):
    assert _declare(_one, start=start).start == start


@pytest.mark.parametrize(("topic", "group"), [("no topic", "g"), ("t", "no group"), ("t", ""), ("t" * 60, "g" * 60)])
def test_names_kafka_would_refuse_are_refused_before(topic, group):
    with pytest.raises(InvalidIdentifier):
        subscription(topic, group=group)(_one)


@pytest.mark.parametrize(("options", "topic"), [({}, "order"), ({"source": "/shop"}, "shop.order")])
def test_an_aggregate_means_the_topic_that_its_service_gives_it(options, topic):
    @subscription(Order, group="billing", **options)
    def bill(event: Order.Placed) -> None: ...

    assert (bill.topic, bill.source) == (topic, options.get("source"))
    assert bill.dead_letter_topic == f"{topic}.billing.dead-letter"


@pytest.mark.parametrize("source", ["", "a\nb", 7])
def test_a_source_is_printable_text(source):
    with pytest.raises(InvalidIdentifier):
        _declare(_bill, source=source)


def _bill(event: Order.Placed) -> None: ...


def test_several_topics_are_one_subscription_by_name_or_by_aggregate():
    @subscription([Order, "payment"], group="ledger", source="/shop")
    def note(event: RecordedEvent) -> None: ...

    assert note.topics == ("shop.order", "payment")
    assert note.dead_letter_topic_of("payment") == "payment.ledger.dead-letter"
    assert note.retry_topic_of("payment") == "payment.ledger.retry"


@pytest.mark.parametrize("name", ["topic", "dead_letter_topic"])
def test_a_subscription_to_several_topics_has_no_topic_of_its_own(name):
    declared = subscription(["order", "payment"], group="ledger")(_bill)
    with pytest.raises(DeclarationError, match="order, payment, which is not one topic"):
        getattr(declared, name)


def test_a_pattern_matches_whole_names_and_never_what_a_group_has_for_itself():
    declared = subscription(pattern=r"payment\..*|payment", group="audit")(_bill)
    ours = ["payment", "payment.suspicious", "payment.validated"]
    groups = ["payment.books.dead-letter", "payment.books.retry", "payment.suspicious.fraud.dead-letter"]
    assert declared.chosen([*groups, *ours, "my.payment", "payments", "__consumer_offsets"]) == ours
    assert subscription(pattern=".*", group="audit")(_bill).chosen(groups) == []


@pytest.mark.parametrize(
    ("topics", "options", "cause"),
    [
        (None, {}, r"topics \[\], with pattern None"),
        ([], {}, r"topics \[\], with pattern None"),
        ("payment", {"pattern": "p.*"}, r"topics \['payment'\], with pattern 'p\.\*'"),
        (["payment", "payment"], {}, "name one twice"),
        (None, {"pattern": "p("}, "is no regular expression"),
        (None, {"pattern": ""}, "is no regular expression"),
        (["order", "payment"], {"start": {0: 3}}, "does not say of which topic"),
        (None, {"pattern": "p.*", "start": {0: 3}}, "does not say of which topic"),
        (None, {"pattern": "p.*", "start": "end"}, "behind its first events"),
        (7, {}, "7 is no topic"),
        ([RecordedEvent], {}, "is no topic"),
    ],
)
def test_topics_that_mean_nothing_are_refused(topics, options, cause):
    with pytest.raises(DeclarationError, match=cause) as refused:
        subscription(topics, group="g", **options)(_bill)
    assert refused.value.remedy


def test_a_record_that_is_put_off_is_not_tried_again_before_unless_it_is_said():
    delays = [timedelta(seconds=10), timedelta(minutes=5)]
    assert (_declare(_bill, retry=delays).attempts, _declare(_bill, retry=delays).retry) == (1, tuple(delays))
    assert _declare(_bill, retry=delays, attempts=3).attempts == 3
    assert (_declare(_bill, retry=[]).attempts, _declare(_bill).retry) == (5, ())


def test_at_most_once_is_one_attempt_without_a_transaction_and_without_lists():
    assert (_declare(_one, guarantee="at-most-once").attempts, _declare(_one).attempts) == (1, 5)
    for handler, cause in ((_with_tx, "with a transaction"), (_many, "with a list of events")):
        with pytest.raises(DeclarationError, match=f"at most once {cause}"):
            _declare(handler, guarantee="at-most-once")


# ---- Queues: what may be declared, what a handler decides on a delivery, and what becomes of the record then


def book(event: Payment.Received, delivery: Delivery, tx: sa.Connection) -> None:
    tx.execute(sa.insert(LEDGER).values(amount=event.amount))
    if event.amount == 2:
        delivery.release()
    if event.amount == 3:
        delivery.reject("three is refused")
    if event.amount == 4:
        raise ValueError("four fails")


def review(event: Payment.Received) -> None: ...


def test_what_a_handler_releases_or_rejects_has_no_effects_and_its_neighbours_have_theirs(engine):
    source = MemorySource(arrivals(1, 2, 3, 4, 5))
    report = deliver(queue("payments", group="desk")(book), source, engine)
    assert (report.handled, report.postponed, report.dead) == (2, 2, 1)
    assert amounts(engine) == [1, 5]
    assert [letter.arrival.place for letter, _ in source.postponed] == ["2", "4"]
    (letter,) = source.dead
    assert (letter.arrival.place, type(letter.error).__name__, str(letter.error)) == (
        "3",
        "Rejected",
        "three is refused",
    )
    assert source.acknowledged == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("amount", [2, 4])
def test_a_record_that_was_delivered_so_often_as_it_may_be_is_a_dead_letter(engine, amount):
    """A release counts as well: a record that nobody takes must not go round for good."""
    (one,) = arrivals(amount)
    source = MemorySource([replace(one, retries=1)], [replace(one, retries=2)])
    report = deliver(queue("payments", group="desk", deliveries=3)(book), source, engine)
    assert (report.postponed, report.dead, len(source.postponed)) == (1, 1, 1)


def test_a_record_that_is_delivered_twice_is_handled_once(engine):
    """As when the lock of a worker ends while it commits."""
    (one,) = arrivals(1)
    report = deliver(queue("payments", group="desk")(book), MemorySource([one], [replace(one, retries=1)]), engine)
    assert (report.handled, report.duplicates, amounts(engine)) == (1, 1, [1])


def test_a_handler_is_told_the_count_and_the_place_of_a_delivery():
    seen = []

    def note(event: Payment.Received, delivery: Delivery, why: RecordedEvent) -> None:
        seen.append((delivery.count, delivery.place, why.version))

    one, two = arrivals(1, 2)
    deliver(queue("payments", group="desk")(note), MemorySource([one, replace(two, retries=3)]))
    assert seen == [(1, "1", 1), (4, "2", 2)]


def test_a_queue_tries_a_record_once_and_borrows_few():
    declared = queue([Payment], group="desk")(review)
    assert (declared.topics, declared.share, declared.guarantee) == (("payment",), True, "at-least-once")
    assert (declared.attempts, declared.batch, declared.timeout, declared.deliveries) == (1, 50, 20.0, 5)
    assert queue("payments", group="desk")(book).guarantee == "effectively-once"


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"guarantee": "at-most-once"}, "a queue is not at most once"),
        ({"deliveries": 0}, "deliveries 0 is no such number"),
        ({"deliveries": 10}, "deliveries 10 is no such number"),
        ({"timeout": 31}, "timeout 31 s is too long"),
        ({"start": datetime(2026, 1, 1, tzinfo=UTC)}, "a queue does not start at"),
        ({"retry": []}, "no option 'retry'"),
        ({"unreadable": "stop"}, "no option 'unreadable'"),
        ({"intake": 10**9}, "no option 'intake'"),
        ({"pattern": "p.*"}, "no option 'pattern'"),
    ],
)
def test_what_a_queue_cannot_promise_is_refused(options, cause):
    with pytest.raises(DeclarationError, match=cause) as refused:
        queue("payments", group="desk", **options)(review)
    assert refused.value.remedy


def test_only_a_queue_counts_deliveries_and_only_of_single_events():
    def many(events: list[Payment.Received], delivery: Delivery) -> None: ...
    def one(event: Payment.Received, delivery: Delivery) -> None: ...
    def none(delivery: Delivery) -> None: ...

    with pytest.raises(DeclarationError, match="takes no delivery"):
        subscription("payments", group="desk")(one)
    with pytest.raises(DeclarationError, match="a delivery and a list"):
        queue("payments", group="desk")(many)
    with pytest.raises(DeclarationError, match="does not take one event"):
        queue("payments", group="desk")(none)


@pytest.mark.parametrize(("timeout", "lock"), [(1, 15), (20, 40), (30, 60)])
def test_a_call_that_begins_in_the_first_half_of_a_lock_ends_within_it(timeout, lock):
    assert lock_seconds(timeout) == lock
    assert lock / 2 + timeout <= lock or timeout < lock / 2


def test_a_share_group_reads_what_was_committed_from_where_the_queue_starts():
    settings = group_settings(queue("payments", group="desk", start="end", timeout=10)(review))
    assert settings == {
        "share.auto.offset.reset": "latest",
        "share.isolation.level": "read_committed",
        "share.record.lock.duration.ms": "20000",
        "share.delivery.count.limit": "10",
    }


class Worker:
    """A share consumer that says what it was told of records."""

    def __init__(self, *messages, lost=()):
        self.messages, self.told, self.lost = list(messages), [], lost

    def poll(self, timeout):
        return [self.messages.pop(0)]

    def acknowledge_offset(self, topic, partition, offset, how):
        if offset in self.lost:
            raise IllegalStateException("not in flight")
        self.told.append((offset, how.name))

    def commit_sync(self, timeout):
        self.told.append("committed")
        return {}


def share_source(*messages, **options):
    source = ShareSource(queue("payment", group="desk", timeout=10)(review), Settings.for_broker("127.0.0.1:1"))
    source._consumer, source._ends = Worker(*messages, **options), {}
    source._reader = SimpleNamespace(
        read=lambda message, topic: KafkaArrival(message, "payment.received", "1", topic=topic),
        opened=lambda arrivals: arrivals,
    )
    return source


@pytest.mark.parametrize(("count", "is_last"), [(1, False), (9, False), (10, True)])
def test_a_record_at_its_last_delivery_meets_no_handler(count, is_last):
    """The broker would drop it without a trace, were the process to end once more."""
    (arrival,) = share_source(Message(deliveries=count)).poll(0)
    assert (arrival.retries, arrival.problem is not None) == (count - 1, is_last)
    if is_last:
        assert "delivered 10 times" in str(arrival.problem)


def test_the_broker_is_told_how_each_record_ended():
    source = share_source(*(Message() for _ in range(4)))
    done, late, dead, left = (source.poll(0)[0] for _ in range(4))
    for offset, arrival in enumerate((done, late, dead, left)):
        arrival.message = SimpleNamespace(topic=lambda: "payment", partition=lambda: 0, offset=lambda o=offset: o)
    source._letters = SimpleNamespace(bury=lambda letter: None)
    source.postpone(SimpleNamespace(arrival=late), timedelta(0))
    source.dead_letter(SimpleNamespace(arrival=dead))
    source.acknowledge([done, late, dead])
    source.give_back([left])
    assert source._consumer.told == [
        (0, "ACCEPT"), (1, "RELEASE"), (2, "REJECT"), "committed", (3, "RELEASE"), "committed"
    ]  # fmt: skip


def test_a_record_that_was_lent_to_another_worker_meanwhile_ends_nothing(capsys):
    source = share_source(Message(), lost=[7])
    source.acknowledge(source.poll(0))
    assert source._consumer.told == ["committed"]
    assert "lent to another worker" in capsys.readouterr().out


def test_a_batch_ends_at_half_of_its_lock(monkeypatch):
    now, halted = [100.0], []
    monkeypatch.setattr("eventstore.kafka.share_source.time.monotonic", lambda: now[0])
    source = share_source(Message())
    source._on_revoked = lambda: halted.append(now[0])
    source.poll(0)
    for now[0] in (100.0, 109.9, 110.1, 110.2):
        source.keep_alive()
    assert halted == [110.1]


def test_how_far_a_share_group_is_behind_is_refused():
    with pytest.raises(SubscriptionError, match="cannot be asked") as refused:
        share_source().lag()
    assert "kafka-share-groups.sh --describe --group desk" in refused.value.remedy
