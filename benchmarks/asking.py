"""asking.*: events enriched by one HTTP call each, against the same join as a view.

A service on this machine answers each call from memory, with one row of 10,000. One caller and sixteen callers at a
time ask it once for each event, over connections that stay open. Ours is a rebuild of the view that joins the events
with the captured rows, from event store to stored view in one SQLite file, planning included; the session is open.
What it does not show: a network (each millisecond of it is added to each call), a service that is busy, down or limits
its callers, and calls that are repeated after a kill.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from threading import local
from typing import Annotated

import requests
import sqlalchemy as sa
import typer

from benchmarks.machine import Claim, at_least, write
from cdc import capture_table
from eventstore import NO_STREAM, Aggregate, SqlEventStore, event
from projections import Environment, ProjectionGroup, Stream, Table, open_session, rebuild, sql_view
from projections.spark.reading.store_source import StoreLog
from projections.spark.session import small_batch_session
from projections.stores.sqlite import SqliteTableStore
from sample_app.story import Story

ROWS = 10_000
CALLERS = (1, 16)
CUSTOMERS = sa.Table(
    "customers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text)
)  # fmt: skip


class Payment(Aggregate):
    """A payment of a customer."""

    @event
    class Received:
        """Cents of a customer."""

        customer_id: int
        cents: int


payments = Stream.from_events(Payment, events=Payment.Received, key="payment_id")
customers = Table.from_changelog(CUSTOMERS, topic="shop.customers")
enriched = sql_view(
    "enriched",
    "SELECT p.payment_id, p.cents, c.name FROM payments p LEFT JOIN customers c ON p.customer_id = c.id",
    tables={"payments": payments, "customers": customers},
)
GROUP = ProjectionGroup("asking", [enriched])


class Names(BaseHTTPRequestHandler):
    """The service that is asked: a customer by id, as JSON."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: the second waited 40 ms for an acknowledgement

    def do_GET(self) -> None:
        """Answer one row."""
        body = json.dumps({"id": int(self.path[1:]), "name": f"Customer {self.path[1:]}"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def serve(port: Connection) -> None:
    """Run the service in a process of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Names)
    port.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def service() -> Iterator[str]:
    """The service's URL, for as long as the block lasts."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    yield f"http://127.0.0.1:{ours.recv()}"
    process.terminate()


def main(
    events: Annotated[int, typer.Option(help="How many events are enriched.")] = 20_000,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
) -> None:
    """Measure and write build/bench/asking.json."""
    story, measured = Story("asking"), dict[str, list[float]]()
    with tempfile.TemporaryDirectory() as folder, service() as url:
        spark = open_session(memory="1g")
        path = _filled(Path(folder) / "asking.db", events)
        for _ in range(runs):
            for callers in CALLERS:
                measured.setdefault(f"calls.{callers}", []).append(_asked(url, events, callers))
            with closing(SqliteTableStore(path)) as store:
                store.prepare()
                environment = Environment(spark, small_batch_session(spark), store, StoreLog(store.path))
                begun = time.perf_counter()
                rebuild(environment, GROUP, cut_over=True)
                measured.setdefault("view", []).append(events / (time.perf_counter() - begun))
        spark.stop()
    best = {name: max(rates) for name, rates in measured.items()}
    claims = [_claim(best, callers, n=events, runs=runs) for callers in CALLERS]
    written = write("asking", claims, rates={name: round(rate, 1) for name, rate in best.items()})
    story.say(", ".join(f"{claim.id} {claim.ratio}" for claim in claims) + f": {written}")


def _claim(best: dict[str, float], callers: int, *, n: int, runs: int) -> Claim:
    rates = {"ours": best["view"], "other": best[f"calls.{callers}"]}
    name = f"{callers} caller{'s' * (callers > 1)}, one call an event"
    return at_least(f"asking.{callers}", **rates, other_name=name, unit="events/s", n=n, runs=runs, target=1.0)


def _filled(path: Path, events: int) -> Path:
    """An event store with payments, and a captured table of customers."""
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        store.register(Payment)
        CUSTOMERS.metadata.create_all(store.engine)
        capture_table(store.engine, CUSTOMERS, topic=customers.topic)
        with store.engine.begin() as connection:
            connection.execute(sa.insert(CUSTOMERS), [{"id": n, "name": f"Customer {n}"} for n in range(ROWS)])
        for number in range(events):
            payment = Payment.Received(customer_id=number % ROWS, cents=number)
            store.append(f"payment-{number}", [payment], expected=NO_STREAM)
    return path


def _asked(url: str, events: int, callers: int) -> float:
    """Events a second that so many callers enrich."""
    held = local()

    def ask(number: int) -> str:
        if not hasattr(held, "session"):
            held.session = requests.Session()
        return str(held.session.get(f"{url}/{number % ROWS}", timeout=30).json()["name"])

    begun = time.perf_counter()
    with ThreadPoolExecutor(max_workers=callers) as pool:
        assert sum(1 for _ in pool.map(ask, range(events), chunksize=100)) == events  # noqa: S101
    return events / (time.perf_counter() - begun)


if __name__ == "__main__":
    typer.run(main)
