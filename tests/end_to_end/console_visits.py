"""A busy tea shop, a console over it, and a browser's visits to it, which leave no trace elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import sqlalchemy as sa

from eventstore import Dispatcher, SqlEventStore, subscription
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.source import StoreSource
from eventstore.delivery import Subscriber
from eventstore.messages import Metadata
from eventstore.processes.engine import ProcessEngine
from eventstore.scheduling import Schedule
from factfold.console.definitions import find_definitions
from factfold.console.places import Places
from factfold.console.server import Server
from factfold.console.sources import Sources
from tests.unit.console.conftest import TEASHOP
from tests.unit.console.stub_connect import connect_worker
from tests.unit.console.teashop import SCRIPT, Order, Payment, fill

PATIENCE_MS = 60_000
PAGES = ["/", "/map", "/view", "/view?group=teashop&view=order_details&key.order_id=o2", "/stream",
         "/stream?stream=order-o1&at=1", "/stream?trace=talk", "/connectors", "/connectors?name=orders-cdc",
         "/subscriptions", "/subscriptions?group=reviews", "/subscriptions?process=payment&instance=o1", "/letters",
         "/letters?home=inbox:order:kitchen&do=replay", "/schemas", "/schemas?type=order.placed"]  # fmt: skip


@subscription("order", group="kitchen", attempts=1)
def cook(event: Order.Placed, tx: sa.Connection) -> None:
    raise ValueError(f"no tea for {event.quantity}: {SCRIPT}")


def fill_busily(path) -> None:
    """The tea shop's file with letters, a process that waits, a scheduled command, and a conversation."""
    fill(path)
    with SqlEventStore(f"sqlite:///{path}") as store:
        shop = Dispatcher(store)
        shop.with_metadata(Metadata(correlation_id="talk")).send_or_raise("o3", Order.place, customer_id=7, quantity=2)
        with Subscriber(cook, StoreSource(store, cook, category="order"), engine=store.engine) as subscriber:
            subscriber.run_once(timeout=0)
        with Database(store.engine, store.tables).writing() as tx:
            events = list(store.read_stream("order-o1", to_version=0))
            ProcessEngine(store, [Payment]).take_events(tx, events, now=events[0].time)
        Schedule(store).after(timedelta(days=1)).send("o9", Order.place, customer_id=1, quantity=1, note=SCRIPT)


@contextmanager
def console(busy, stub, *, allow_actions=True):
    """Serve a console over the shop; gives the URL to open."""
    url, found = f"sqlite:///{busy}", find_definitions([TEASHOP])
    with connect_worker(stub) as worker:
        places = Places(store_url=url, views_url=url, connect_url=worker)
        with Sources(places, found, every=0.0, patience=20.0) as sources:
            server = Server(sources, host="127.0.0.1", port=0, allow_actions=allow_actions)
            with server.serving():
                yield server.url


class Seen:
    """What a browser did: the hosts it asked, the dialogs that opened, the errors of its console."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def watch(self, context) -> None:
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("dialog", self._dialog)
        context.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)

    def _dialog(self, dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def require_loopback(self) -> None:
        hosts = {urlsplit(url).hostname for url in self.requests if not url.startswith("data:")}
        assert self.requests
        assert hosts == {"127.0.0.1"}


@contextmanager
def opened(chromium, url, **options):
    """A page of a new context that has entered; at its end no request left the loopback and nothing complained."""
    seen = Seen()
    with opened_without_checks(chromium, url, watch=seen.watch, **options) as page:
        yield page
    seen.require_loopback()
    assert seen.complaints == []


@contextmanager
def opened_without_checks(chromium, url, *, watch=lambda context: None, **options):
    """A page of a new context that has entered; `watch` gets the context before it does."""
    context = chromium.new_context(**options)
    watch(context)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
