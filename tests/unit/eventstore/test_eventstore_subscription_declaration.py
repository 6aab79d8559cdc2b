"""What a subscription may look like, and what is refused while it is being declared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from eventstore import Aggregate, RecordedEvent, event, subscription
from eventstore.errors import DeclarationError, InvalidIdentifier
from tests.ledger import Payment
from tests.rows import each_row

if TYPE_CHECKING:
    from sqlalchemy import Connection


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


class Order(Aggregate):
    @event
    class Placed:
        sku: str


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


@pytest.mark.parametrize("name", ["topic", "dead_letter_topic", "retry_topic"])
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
