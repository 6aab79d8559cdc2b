"""A shop whose processes are tested: a store with a clock that stands, and processes of every kind."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import sqlalchemy as sa

from eventstore import Accepted, Dispatcher, command
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.process_rows import TIMER, Scheduled
from eventstore.processes import Process, Reply, reacts, replies, starts, times_out
from eventstore.processes.administration import Processes
from eventstore.processes.engine import ProcessEngine
from eventstore.processes.worker import ProcessWorker
from tests.notes import Note
from tests.unit.eventstore.fulfilment import Fulfilment, Item, Order, Payment

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Shop:
    """A store with a process in it, and a clock that stands until it is moved."""

    def __init__(self, store, *kinds):
        self.store, self.kinds, self.now = store, kinds or (Fulfilment,), NOON
        self.dispatcher = Dispatcher(store)
        self.engine = ProcessEngine(store, self.kinds)
        self.database = Database(store.engine, store.tables)
        self.processes = Processes(store, self.kinds, clock=lambda: self.now)
        self.seen = None

    def worker(self, **options):
        return ProcessWorker(self.store, self.kinds, clock=lambda: self.now, **options)

    def send(self, *sent, **arguments):
        assert isinstance(self.dispatcher.send(*sent, **arguments), Accepted)

    def place(self, *orders, quantity=1):
        for order in orders:
            self.send(order, Order.place, sku="tea", quantity=quantity, amount=Decimal(9))

    def begin(self, *, stock, quantity=1):
        """Fill the shelf, and place the first order."""
        self.stock(stock)
        self.place("o1", quantity=quantity)

    def work(self):
        """Hand over everything that has happened, and let a worker do all that is due."""
        self.deliver()
        self.worker().drain()

    def stock(self, quantity):
        self.send("tea", Item.receive, quantity=quantity)

    def pay(self, order):
        self.send(f"p-{order}", Payment.receive, order_id=order, amount=Decimal(9))

    def deliver(self):
        """Hand over what has happened since."""
        events = list(self.store.read_all(after=self.seen))
        if events:
            with self.database.writing() as tx:
                self.engine.take_events(tx, events, now=self.now)
            self.seen = events[-1].position

    def pass_time(self, **time):
        self.now += timedelta(**time)

    def types(self, stream):
        return [event.type for event in self.store.read_stream(stream)]

    def steps(self, order):
        stream = f"{self.kinds[0].category}-{order}"
        return [(event.data["cause"]["name"], event.data["status"]) for event in self.store.read_stream(stream)]

    def status(self, order):
        return self.processes.show(self.kinds[0].category, order).status

    def insert_timer(self, order, name):
        """Set a timer beside those of the process."""
        row = Scheduled(
            id=uuid4(),
            due=self.now,
            kind=TIMER,
            name=name,
            process=self.kinds[0].category,
            instance=order,
            set_at=self.now,
        )
        with self.database.writing() as tx:
            self.engine.rows.schedule(tx, [row])

    def rows(self, table):
        with self.store.engine.connect() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(sa.table(table))).scalar_one()


class Reminder(Process):
    broken = True
    hangs = threading.Event()
    when: str = ""
    reminded: int = 0

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.when = event.sku
        self.timeout("remind", after=timedelta(minutes=int(event.sku) if event.sku.isdigit() else 10))

    @times_out("remind")
    def remind(self) -> None:
        self.reminded += 1
        if self.when == "raise" and self.broken:
            raise ZeroDivisionError
        if self.when == "large":
            self.when *= 1_000_000
        if self.when == "hang":
            self.hangs.wait(20)


class Counting(Process, sends=[Note]):
    """Decides several commands and timers at one moment."""

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        for number in range(event.quantity):
            self.send("out", Note.write, text=str(number))
        for name in "edcba":
            self.timeout(name, after=timedelta(minutes=1))

    @times_out("a")
    @times_out("b")
    @times_out("c")
    @times_out("d")
    @times_out("e")
    def due(self) -> None:
        """The step that the timer makes is all."""


class Patient(Process, sends=[Note]):
    """Waits as long as there is time."""

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.timeout("late", after=timedelta.max)
        self.send("out", Note.write, text="1").delayed(timedelta.max).expiring(timedelta.max)
        self.send("out", Note.write, text="2").expiring(timedelta.max)

    @times_out("late")
    def due(self) -> None:
        self.done()


class Family(Process):
    """An order starts its own instance, and is told to the one of its parent."""

    children: int = 0

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None: ...

    @reacts(Order.Placed, id="sku")
    def child(self, event: Order.Placed) -> None:
        self.children += 1


class Picky(Process):
    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        if event.sku == "raise":
            raise ZeroDivisionError


class Broken(Process, sends=[Order]):
    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.send(self.id, Order.cancel, reason="never")
        raise ZeroDivisionError


class Hurried(Process, sends=[Item]):
    heard: str = ""

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.send(event.sku, Item.reserve, order_id=self.id, quantity=1).expiring(timedelta(minutes=1))

    @replies(Item.reserve)
    def answered(self, reply: Reply) -> None:
        self.heard = reply.outcome


class Named(Process):
    @starts(Order.Placed, id="sku")
    def placed(self, event: Order.Placed) -> None: ...


class Former(Process, category="talk"):
    said: str = ""

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None: ...

    @reacts(Payment.Received, id="order_id")
    def paid(self, event: Payment.Received) -> None:
        self.said = "former"


class NewerAlone(Former, category="talk", version=2):
    @reacts(Payment.Received, id="order_id")
    def paid(self, event: Payment.Received) -> None:
        self.said = "newer"


class Newer(NewerAlone, category="talk", version=2, earlier=[Former]):
    pass


class Exploding(Order, category="exploding"):
    @command
    def explode(self) -> None:
        raise ZeroDivisionError


explode = Exploding.explode
