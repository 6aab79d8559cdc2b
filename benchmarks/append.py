"""append.*: the store's append against raw SQL of the same rows and against pyeventsourcing, on one PostgreSQL.

Each append is a transaction: a new stream with 1, 10 or 100 events of about 30 bytes of Avro. Ours encodes the events,
checks the expected version and answers with versions and positions. Raw SQL inserts the same rows into the same table,
their bodies encoded before: psycopg, prepared, INSERT … VALUES for one event and INSERT … SELECT from unnest for more,
positions returned, no check but the table's constraints. pyeventsourcing does what it does by default. Then the same
with 16 threads. Alternating, best of the runs. What it does not show: a database on a machine of its own, where the
round trip counts for both.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Annotated, Any

import psycopg
import sqlalchemy as sa
import typer

from benchmarks.machine import Claim, at_least, write
from benchmarks.peer import Pyeventsourcing
from eventstore import NO_STREAM, Aggregate, SqlEventStore, event
from eventstore.event_types import event_type_of
from eventstore.topics import message_key, partition_of
from factfold.stack import LocalStack
from sample_app.story import Story

SIZES = (1, 10, 100)
RAW_TARGET = {1: 0.7, 10: 0.8, 100: 0.8}
PEER_TARGET = 3.0
WRITERS = 16
WRITERS_TARGET = 0.8


class Dog(Aggregate):
    """What pyeventsourcing's program has, too."""

    @event
    class Registered:
        """A dog with a name."""

        name: str

    @event
    class TrickAdded:
        """It learned something."""

        trick: str


def main(
    seconds: Annotated[float, typer.Option(help="How long each measurement lasts.")] = 4.0,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
    stack: Annotated[str | None, typer.Option(help="Use the servers of this stack.")] = None,
) -> None:
    """Measure and write build/bench/append.json."""
    story = Story("append")
    with LocalStack(stack or "bench", ephemeral=stack is None) as servers:
        url = servers.info.postgres.url()
        engine = sa.create_engine(url)
        with SqlEventStore(url, schema=f"bench_{uuid.uuid4().hex[:8]}") as store:
            store.create_tables()
            store.register(Dog)
            rounds = [_round(story, store, Pyeventsourcing(engine), seconds) for _ in range(runs)]
        engine.dispose()
    best = {name: max(rates[name] for rates in rounds) for name in rounds[0]}
    claims = _claims(best, runs=runs, seconds=seconds)
    path = write("append", claims, rates={name: round(rate) for name, rate in best.items()})
    story.say(", ".join(f"{claim.id} {claim.ratio}" for claim in claims) + f": {path}")


def _round(story: Story, store: SqlEventStore, peer: Pyeventsourcing, seconds: float) -> dict[str, float]:
    rates: dict[str, float] = {}
    for size in SIZES:
        rates[f"ours.{size}"] = _rate(_ours(store, size), seconds, writers=1) * size
        rates[f"raw.{size}"] = _rate(_raw(store, size), seconds, writers=1) * size
        rates[f"peer.{size}"] = peer.rate("append", size, round(seconds))
        rates[f"ours.{size}.writers"] = _rate(_ours(store, size), seconds, writers=WRITERS) * size
        rates[f"raw.{size}.writers"] = _rate(_raw(store, size), seconds, writers=WRITERS) * size
    story.say(", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()) + " events/s")
    return rates


Writer = Callable[[], Callable[[], object]]


def _rate(writer: Writer, seconds: float, *, writers: int) -> float:
    """Appends a second of so many threads, after one append each that is not counted."""
    counts, start = [0] * writers, threading.Barrier(writers)

    def work(number: int) -> float:
        append = writer()
        append()
        start.wait()
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            append()
            counts[number] += 1
        return time.perf_counter() - begun

    with ThreadPoolExecutor(writers) as pool:
        longest = max(pool.map(work, range(writers)))
    return sum(counts) / longest


def _ours(store: SqlEventStore, size: int) -> Writer:
    def append() -> object:
        events = [Dog.Registered(name="Fido"), *(Dog.TrickAdded(trick="roll") for _ in range(size - 1))]
        return store.append(f"dog-{uuid.uuid4()}", events, expected=NO_STREAM)

    return lambda: append


_COLUMNS = {
    "id": "uuid", "stream": "text", "version": "int", "category": "text", "type": "text", "schema_id": "int",
    "payload": "bytea", "message_key": "text", "partition": "int", "topic": "text", "ce_source": "text",
    "time": "timestamptz", "ce_time": "text",
}  # fmt: skip


def _raw(store: SqlEventStore, size: int) -> Writer:
    names = ", ".join(_COLUMNS)
    xid, table = "pg_current_xact_id()::text::bigint", f'"{store.tables.schema}".events ({names}, order_xid)'
    arrays = ", ".join(f"%b::{kind}[]" for kind in _COLUMNS.values())
    single = ", ".join(f"%b::{kind}" for kind in _COLUMNS.values())
    one, many = f"values ({single}, {xid})", f"select {names}, {xid} from unnest({arrays}) as e({names})"  # noqa: S608
    statement = f"insert into {table} {one if size == 1 else many} returning position"
    url = store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    rows = _rows(size)

    def start() -> Callable[[], object]:
        connection = psycopg.connect(url, autocommit=True)

        def append() -> object:
            columns = rows() if size > 1 else [column[0] for column in rows()]
            return connection.execute(statement, columns, prepare=True).fetchall()

        return append

    return start


def _rows(size: int) -> Callable[[], Sequence[list[Any]]]:
    """The columns of a new stream's events; bodies and types were made before."""
    made = [Dog.Registered(name="Fido"), *(Dog.TrickAdded(trick="roll") for _ in range(size - 1))]
    kinds = [event_type_of(one) for one in made]
    bodies, ids = [kind.encode(one) for kind, one in zip(kinds, made, strict=True)], [kind.schema_id for kind in kinds]
    types = [kind.name for kind in kinds]

    def rows() -> Sequence[list[Any]]:
        stream, now = f"dog-{uuid.uuid4()}", datetime.now(UTC)
        text, partition = now.isoformat(), partition_of(stream, 4)
        same = [[value] * size for value in (partition, "dog", "/factfold", now, text)]
        keys = [message_key(stream, version) for version in range(size)]
        new = [uuid.uuid4() for _ in range(size)]
        return [new, [stream] * size, list(range(size)), ["dog"] * size, types, ids, bodies, keys, *same]

    return rows


def _claims(best: dict[str, float], *, runs: int, seconds: float) -> list[Claim]:
    def claim(id: str, ours: str, other: str, name: str, target: float) -> Claim:
        counted = round(best[ours] * seconds)
        return at_least(
            id,
            ours=best[ours],
            other=best[other],
            other_name=name,
            unit="events/s",
            n=counted,
            runs=runs,
            target=target,
        )

    raw = "raw SQL by psycopg"
    return [
        *(claim(f"append.raw.{n}", f"ours.{n}", f"raw.{n}", raw, RAW_TARGET[n]) for n in SIZES),
        *(claim(f"append.peer.{n}", f"ours.{n}", f"peer.{n}", Pyeventsourcing.name, PEER_TARGET) for n in SIZES[1:]),
        *(
            claim(f"append.writers.{WRITERS}" + (f".{n}" if n > 1 else ""), f"ours.{n}.writers", f"raw.{n}.writers",
                  f"{raw}, {WRITERS} threads", WRITERS_TARGET)
            for n in SIZES
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
