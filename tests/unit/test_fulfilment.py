"""The shop's fulfilment by the test kit: how an order ends well, and every way in which it does not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from eventstore.processes.records import EVENT
from eventstore.testing.processes import ProcessScenario, accepted, clock, given, refused
from eventstore.testing.processes import command as sent
from sample_app.fulfilment import Fulfilment
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import SUSPICIOUS_ABOVE, Payment, Refund

USUAL, SUSPICIOUS = Decimal(20), Decimal(SUSPICIOUS_ABOVE) + 1
WANTED = {"order_id": "o1", "quantity": 2}
RESERVE = sent("sku", InventoryItem.reserve, **WANTED)
RELEASE = sent("sku", InventoryItem.release, **WANTED)
SHIP = sent("o1", Order.ship, carrier="Post")
RESERVED, UNDONE, SHIPPED = (
    accepted(command) for command in (InventoryItem.reserve, InventoryItem.release, Order.ship)
)
RELEASED = Order.Released(reason="score 700")
OUT_OF_STOCK = refused(InventoryItem.reserve, "only 1 of Tea left, 2 requested")
LATE = "paid after the end of the order"


def placed(amount: Decimal = USUAL) -> Order.Placed:
    return Order.Placed(customer_id=1, sku="sku", quantity=2, amount=amount)


def paid(amount: Decimal = USUAL) -> Payment.Received:
    return Payment.Received(order_id="o1", customer_id=1, amount=amount, paid_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


def order(*past: object, amount: Decimal = USUAL) -> ProcessScenario:
    return given(Fulfilment, placed(amount), *past, id="o1")


def cancel(reason: str):
    return sent("o1", Order.cancel, reason=reason)


def refund(scenario: ProcessScenario, reason: str, amount: Decimal = USUAL):
    """The refund of the payment that came last: it has the id of its event."""
    payments = [step.cause for step in scenario.steps if step.cause.kind == EVENT and "payment" in step.cause.name]
    return sent(str(payments[-1].id), Refund.ask, order_id="o1", amount=amount, reason=reason)


def test_a_placed_order_reserves_and_waits_for_its_payment():
    found = given(Fulfilment, id="o1").when(placed())
    found.then(commands=[RESERVE], timers=["payment"], status="running")


def test_an_order_that_is_reserved_and_paid_is_shipped():
    order(RESERVED).when(paid()).then(commands=[SHIP], timers=[], status="running")


def test_a_shipped_order_is_done():
    order(RESERVED, paid()).when(SHIPPED).then(commands=[], timers=[], status="done")


@pytest.mark.parametrize("shipped", [SHIPPED, Order.Shipped(carrier="Post")])
def test_the_event_and_the_reply_that_say_shipped_come_in_any_order(shipped):
    ended = order(RESERVED, paid(), shipped).then(status="done")
    ended.when(Order.Shipped(carrier="Post")).then(commands=[], status="done")


def test_a_payment_before_the_reservation_ships_nothing_yet():
    order(paid()).then(timers=[]).when(RESERVED).then(commands=[SHIP])


def test_a_payment_before_its_order_is_kept():
    early = given(Fulfilment, paid(), id="o1").then(status="unstarted")
    early.when(placed(), RESERVED).then(commands=[RESERVE, SHIP], timers=[])


def test_a_suspicious_payment_waits_for_the_fraud_service():
    order(RESERVED, amount=SUSPICIOUS).when(paid(SUSPICIOUS)).then(commands=[], timers=["review"])


@pytest.mark.parametrize(("amount", "ships"), [(SUSPICIOUS_ABOVE, [SHIP]), (SUSPICIOUS_ABOVE + Decimal("0.01"), [])])
def test_an_amount_is_suspicious_just_above_the_bound(amount, ships):
    order(RESERVED, amount=Decimal(amount)).when(paid(Decimal(amount))).then(commands=ships)


def test_a_released_order_is_shipped():
    order(RESERVED, paid(SUSPICIOUS), amount=SUSPICIOUS).when(RELEASED).then(commands=[SHIP], timers=[])


def test_a_release_that_arrives_before_its_payment_counts():
    order(RESERVED, RELEASED, amount=SUSPICIOUS).when(paid(SUSPICIOUS)).then(commands=[SHIP], timers=[])


def test_a_release_alone_ships_nothing():
    order(RESERVED, amount=SUSPICIOUS).when(RELEASED).then(commands=[], timers=["payment"])


# Refusal


def test_a_refused_reservation_cancels_the_order():
    found = order().when(OUT_OF_STOCK)
    found.then(commands=[cancel("out of stock: only 1 of Tea left, 2 requested")], timers=[], status="compensated")


def test_a_refused_reservation_refunds_a_payment_that_was_quicker():
    found, why = order(paid()).when(OUT_OF_STOCK), "out of stock: only 1 of Tea left, 2 requested"
    found.then(commands=[cancel(why), refund(found, why)], status="compensated")


def test_a_refused_shipment_waits_for_what_becomes_of_the_order():
    held = order(RESERVED, paid()).when(refused(Order.ship, "order o1 is held")).then(timers=["review"])
    held.when(RELEASED).then(commands=[SHIP], timers=[])


# Time-outs


def test_an_order_that_is_not_paid_in_time_is_undone_and_cancelled():
    waiting = order(RESERVED).when(clock.advance("29m 59s")).then(timers=["payment"])
    undoing = waiting.when(clock.advance("1s")).then(commands=[RELEASE], timers=[], status="compensating")
    undoing.when(UNDONE).then(commands=[cancel("not paid in time")], status="compensated")


def test_a_time_out_before_the_reservation_was_sent_undoes_nothing():
    order().when(clock.advance("30m")).then(commands=[cancel("not paid in time")], status="compensated")


def test_a_payment_in_time_takes_the_timer_back():
    order(RESERVED, paid()).when(clock.advance("31m")).then(commands=[], status="running")


def test_a_payment_that_nobody_looks_at_for_a_day_is_given_back():
    waiting = (
        order(RESERVED, paid(SUSPICIOUS), amount=SUSPICIOUS).when(clock.advance("23h 59m")).then(timers=["review"])
    )
    undoing = waiting.when(clock.advance("1m")).then(commands=[RELEASE], timers=[])
    ended, why = undoing.when(UNDONE), "its payment was not reviewed in time"
    ended.then(commands=[cancel(why), refund(ended, why, SUSPICIOUS)], status="compensated")


# Cancellation


def test_a_customer_who_cancels_before_paying_gets_the_stock_back_on_the_shelf():
    undoing = order(RESERVED).when(Order.Cancelled(reason="changed my mind")).then(commands=[RELEASE], timers=[])
    undoing.when(UNDONE).then(commands=[], status="compensated")


def test_a_cancellation_before_the_reservation_was_sent_withdraws_it():
    order().when(Order.Cancelled(reason="changed my mind")).then(commands=[], status="compensated")


def test_a_payment_that_the_fraud_service_does_not_trust_is_given_back():
    undoing = order(RESERVED, paid(SUSPICIOUS), amount=SUSPICIOUS).when(Order.Cancelled(reason="score 100"))
    ended = undoing.then(commands=[RELEASE], timers=[]).when(UNDONE)
    ended.then(commands=[refund(ended, "score 100", SUSPICIOUS)], status="compensated")


def test_a_cancellation_that_was_quicker_than_the_shipment_is_undone():
    refusal = refused(Order.ship, "order o1 is cancelled")
    undoing = order(RESERVED, paid(), refusal).when(Order.Cancelled(reason="changed my mind"))
    ended = undoing.then(commands=[RELEASE], timers=[]).when(UNDONE)
    ended.then(commands=[refund(ended, "changed my mind")], status="compensated")


def test_an_order_that_is_cancelled_while_it_is_undone_is_not_cancelled_again():
    undoing = order(RESERVED, clock.advance("30m"), Order.Cancelled(reason="changed my mind"))
    undoing.when(UNDONE).then(commands=[], status="compensated")


# What comes late, twice, or wrong


@pytest.mark.parametrize(
    "past",
    [
        pytest.param([OUT_OF_STOCK], id="out of stock"),
        pytest.param([RESERVED, clock.advance("30m")], id="being undone"),
        pytest.param([RESERVED, clock.advance("30m"), UNDONE], id="undone"),
        pytest.param([Order.Cancelled(reason="changed my mind")], id="cancelled"),
    ],
)
def test_a_payment_after_the_end_is_refunded(past):
    found = order(*past).when(paid())
    found.then(commands=[refund(found, LATE)])


def test_a_second_payment_is_refunded_and_the_first_counts():
    found = order(paid()).when(paid())
    found.then(commands=[refund(found, "paid twice")]).when(RESERVED).then(commands=[SHIP])


def test_a_second_payment_of_a_shipped_order_is_refunded():
    found = order(RESERVED, paid(), SHIPPED).when(paid())
    found.then(commands=[refund(found, LATE)], status="done")


def test_a_payment_of_another_amount_is_refunded_and_the_order_goes_on_waiting():
    found = order(RESERVED).when(paid(Decimal(19)))
    found.then(commands=[refund(found, "not the order's amount", Decimal(19))], timers=["payment"], status="running")


# Compensation that fails


def test_a_refused_compensation_says_so_and_leaves_the_order_to_somebody():
    stuck = order(RESERVED, clock.advance("30m")).when(refused(InventoryItem.release, "nothing is reserved"))
    stuck.then(commands=[], status="compensation_failed")
    assert "nothing is reserved" in stuck.process().standing.problem


def test_a_payment_is_refunded_even_if_the_compensation_failed():
    stuck = order(RESERVED, clock.advance("30m"), refused(InventoryItem.release))
    found = stuck.when(paid())
    found.then(commands=[refund(found, LATE)], status="compensation_failed")
