"""A process for tests: reserve, wait for the payment, ship; give up and undo."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from eventstore import Aggregate, command, event
from eventstore.processes import Process, Reply, compensated, late, reacts, replies, starts, times_out


class Item(Aggregate):
    free: int = 0
    closed: bool = False

    @event
    class Received:
        quantity: int

    @event
    class Reserved:
        order_id: str
        quantity: int

    @event
    class Released:
        order_id: str
        quantity: int

    @event
    class Closed:
        pass

    @command
    def receive(self, *, quantity: int) -> None:
        self.emit(self.Received(quantity=quantity))

    @command
    def reserve(self, *, order_id: str, quantity: int) -> None:
        if quantity > self.free:
            self.refuse(f"only {self.free} left")
        self.emit(self.Reserved(order_id=order_id, quantity=quantity))

    @command
    def release(self, *, order_id: str, quantity: int) -> None:
        if self.closed:
            self.refuse("the shelf is closed")
        self.emit(self.Released(order_id=order_id, quantity=quantity))

    @command
    def close(self) -> None:
        self.emit(self.Closed())

    def on_received(self, e: Received) -> None:
        self.free += e.quantity

    def on_reserved(self, e: Reserved) -> None:
        self.free -= e.quantity

    def on_released(self, e: Released) -> None:
        self.free += e.quantity

    def on_closed(self, e: Closed) -> None:
        self.closed = True


class Order(Aggregate):
    status: str = "new"

    @event
    class Placed:
        sku: str
        quantity: int
        amount: Decimal

    @event
    class Shipped:
        carrier: str

    @event
    class Cancelled:
        reason: str

    @command
    def place(self, *, sku: str, quantity: int, amount: Decimal) -> None:
        self.emit(self.Placed(sku=sku, quantity=quantity, amount=amount))

    @command
    def ship(self, *, carrier: str) -> None:
        self.emit(self.Shipped(carrier=carrier))

    @command
    def cancel(self, *, reason: str) -> None:
        self.emit(self.Cancelled(reason=reason))


class Payment(Aggregate):
    @event
    class Received:
        order_id: str
        amount: Decimal

    @event
    class Refunded:
        pass

    @command
    def receive(self, *, order_id: str, amount: Decimal) -> None:
        self.emit(self.Received(order_id=order_id, amount=amount))

    @command
    def refund(self) -> None:
        self.emit(self.Refunded())


class Fulfilment(Process, sends=[Item, Order, Payment]):
    amount: Decimal = Decimal(0)
    reserved: bool = False
    paid: bool = False
    refunds: int = 0

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.amount = event.amount
        reservation = {"order_id": self.id, "quantity": event.quantity}
        self.send(event.sku, Item.reserve, **reservation).undone_by(Item.release, **reservation)
        self.timeout("payment", after=timedelta(minutes=30))

    @replies(Item.reserve)
    def answered(self, reply: Reply) -> None:
        self.reserved = reply.accepted
        if reply.accepted:
            self.ship_if_ready()
        else:
            self.compensate(reply.reason)

    @reacts(Payment.Received, id="order_id")
    def received(self, event: Payment.Received) -> None:
        self.paid = True
        self.cancel("payment")
        self.ship_if_ready()

    def ship_if_ready(self) -> None:
        if self.reserved and self.paid:
            self.send(self.id, Order.ship, carrier="Post")
            self.done()

    @late(Payment.Received, id="order_id")
    def paid_late(self, event: Payment.Received) -> None:
        self.refunds += 1
        self.send(f"p-{self.id}", Payment.refund)

    @times_out("payment")
    def unpaid(self) -> None:
        self.compensate("not paid in time")

    @compensated
    def undone(self) -> None:
        self.send(self.id, Order.cancel, reason="not paid, or not there")
        if self.paid:
            self.refunds += 1
            self.send(f"p-{self.id}", Payment.refund)


PLACED = Order.Placed(sku="tea", quantity=2, amount=Decimal(9))
PAID = Payment.Received(order_id="o1", amount=Decimal(9))
