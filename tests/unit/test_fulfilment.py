"""The shop's fulfilment by the test kit: how an order ends well, and every way in which it does not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from eventstore.processes.records import EVENT
from eventstore.testing.processes import ProcessScenario, accepted, clock, given, refused
from eventstore.testing.processes import command as sent
from sample_app.fulfilment import Fulfilment
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import SUSPICIOUS_ABOVE, Payment, Refund
from tests.rows import each_row

USUAL, SUSPICIOUS, JUST_ABOVE = Decimal(20), Decimal(SUSPICIOUS_ABOVE) + 1, SUSPICIOUS_ABOVE + Decimal("0.01")
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


def cancel(reason: str):
    return sent("o1", Order.cancel, reason=reason)


def refund(why: str, amount: Decimal = USUAL):
    """The refund of the payment that came last: it has the id of its event."""

    def of(scenario: ProcessScenario):
        payments = [step.cause for step in scenario.steps if step.cause.kind == EVENT and "payment" in step.cause.name]
        return sent(str(payments[-1].id), Refund.ask, order_id="o1", amount=amount, reason=why)

    return of


PLACED, PAID, RISKY = placed(), paid(), [placed(SUSPICIOUS), RESERVED, paid(SUSPICIOUS)]
MIND, NO_STOCK = Order.Cancelled(reason="changed my mind"), "out of stock: only 1 of Tea left, 2 requested"
HALF_AN_HOUR, LATER = clock.advance("30m"), "its payment was not reviewed in time"
REFUSED, NOT_PAID = refused(Order.ship, "order o1 is held"), cancel("not paid in time")
NO_RELEASE = refused(InventoryItem.release, "nothing is reserved")

# What came before, then each thing that comes, with the commands, timers and status that it leads to.
STORIES: dict[str, tuple[list[Any], list[tuple[Any, dict[str, Any]]]]] = {
    "it reserves, and waits for its payment": (
        [], [(PLACED, {"commands": [RESERVE], "timers": ["payment"], "status": "running"})]),
    "reserved and paid, it is shipped and done": ([PLACED, RESERVED], [
        (PAID, {"commands": [SHIP], "timers": [], "status": "running"}),
        (SHIPPED, {"timers": [], "status": "done"})]),
    "the event that says shipped may come before the reply": ([PLACED, RESERVED, PAID], [
        (Order.Shipped(carrier="Post"), {"status": "done"}), (SHIPPED, {"status": "done"})]),
    "a payment before the reservation ships nothing yet": ([PLACED], [
        (PAID, {"timers": []}), (RESERVED, {"commands": [SHIP]})]),
    "a payment before its order is kept": ([], [
        (PAID, {"status": "unstarted"}), (PLACED, {"commands": [RESERVE], "timers": []}),
        (RESERVED, {"commands": [SHIP]})]),
    "a suspicious payment waits for the fraud service": ([placed(SUSPICIOUS), RESERVED], [
        (paid(SUSPICIOUS), {"timers": ["review"]}), (RELEASED, {"commands": [SHIP], "timers": []})]),
    "an amount at the bound is not suspicious": (
        [placed(Decimal(SUSPICIOUS_ABOVE)), RESERVED], [(paid(Decimal(SUSPICIOUS_ABOVE)), {"commands": [SHIP]})]),
    "an amount just above the bound is": (
        [placed(JUST_ABOVE), RESERVED], [(paid(JUST_ABOVE), {"timers": ["review"]})]),
    "a release that arrives before its payment counts, and ships nothing alone": ([placed(SUSPICIOUS), RESERVED], [
        (RELEASED, {"timers": ["payment"]}), (paid(SUSPICIOUS), {"commands": [SHIP]})]),
    "a refused reservation cancels it": ([PLACED], [
        (OUT_OF_STOCK, {"commands": [cancel(NO_STOCK)], "timers": [], "status": "compensated"})]),
    "and refunds a payment that was quicker": ([PLACED, PAID], [
        (OUT_OF_STOCK, {"commands": [cancel(NO_STOCK), refund(NO_STOCK)], "status": "compensated"})]),
    "a refused shipment waits for what becomes of it": ([PLACED, RESERVED, PAID], [
        (REFUSED, {"timers": ["review"]}), (RELEASED, {"commands": [SHIP], "timers": []})]),
    "not paid in time, it is undone and cancelled": ([PLACED, RESERVED], [
        (clock.advance("29m 59s"), {"timers": ["payment"]}),
        (clock.advance("1s"), {"commands": [RELEASE], "timers": [], "status": "compensating"}),
        (UNDONE, {"commands": [NOT_PAID], "status": "compensated"})]),
    "a time-out before the reservation was sent undoes nothing": (
        [PLACED], [(HALF_AN_HOUR, {"commands": [NOT_PAID], "status": "compensated"})]),
    "a payment in time takes the timer back": (
        [PLACED, RESERVED, PAID], [(clock.advance("31m"), {"status": "running"})]),
    "a payment that nobody looks at for a day is given back": (RISKY, [
        (clock.advance("23h 59m"), {"timers": ["review"]}),
        (clock.advance("1m"), {"commands": [RELEASE], "timers": []}),
        (UNDONE, {"commands": [cancel(LATER), refund(LATER, SUSPICIOUS)], "status": "compensated"})]),
    "cancelled before it is paid, it gives the stock back": ([PLACED, RESERVED], [
        (MIND, {"commands": [RELEASE], "timers": []}), (UNDONE, {"status": "compensated"})]),
    "a cancellation before the reservation was sent withdraws it": (
        [PLACED], [(MIND, {"status": "compensated"})]),
    "a payment that the fraud service does not trust is given back": (RISKY, [
        (Order.Cancelled(reason="score 100"), {"commands": [RELEASE], "timers": []}),
        (UNDONE, {"commands": [refund("score 100", SUSPICIOUS)], "status": "compensated"})]),
    "a cancellation that was quicker than the shipment is undone": ([PLACED, RESERVED, PAID, REFUSED], [
        (MIND, {"commands": [RELEASE], "timers": []}),
        (UNDONE, {"commands": [refund("changed my mind")], "status": "compensated"})]),
    "cancelled while it is undone, it is not cancelled again": (
        [PLACED, RESERVED, HALF_AN_HOUR, MIND], [(UNDONE, {"status": "compensated"})]),
    **{f"a payment after the end is refunded: {ended}": ([PLACED, *past], [(PAID, {"commands": [refund(LATE)]})])
       for ended, past in {
           "out of stock": [OUT_OF_STOCK], "being undone": [RESERVED, HALF_AN_HOUR], "cancelled": [MIND],
           "undone": [RESERVED, HALF_AN_HOUR, UNDONE], "shipped": [RESERVED, PAID, SHIPPED],
       }.items()},
    "a second payment is refunded, and the first counts": ([PLACED, PAID], [
        (PAID, {"commands": [refund("paid twice")]}), (RESERVED, {"commands": [SHIP]})]),
    "a payment of another amount is refunded, and it goes on waiting": ([PLACED, RESERVED], [
        (paid(Decimal(19)), {"commands": [refund("not the order's amount", Decimal(19))], "timers": ["payment"],
                             "status": "running"})]),
    "a refused compensation leaves it to somebody, and a payment is refunded": ([PLACED, RESERVED, HALF_AN_HOUR], [
        (NO_RELEASE, {"status": "compensation_failed"}),
        (PAID, {"commands": [refund(LATE)], "status": "compensation_failed"})]),
}  # fmt: skip


@each_row("story", STORIES)
def test_an_order_goes_its_way(story):
    past, steps = STORIES[story]
    scenario = given(Fulfilment, *past, id="o1")
    for what, leads_to in steps:
        scenario = scenario.when(what)
        commands = [one(scenario) if callable(one) else one for one in leads_to.get("commands", ())]
        scenario.then(**leads_to | {"commands": commands})
