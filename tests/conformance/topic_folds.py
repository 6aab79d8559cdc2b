"""Topics by hand: what a reader makes of the records of a view, and rows whose results are final."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from types import SimpleNamespace

import pyarrow as pa
import sqlalchemy as sa

from projections import FinalResults, ProjectionGroup, view
from projections.declaring.columns import ColumnType
from projections.outputs.publishing import ViewPublisher, opened_publisher, prepare_topics
from projections.stores import finals, outbox, runs
from projections.stores.runs import BUILT
from projections.testing.memory_log import MemoryLog
from tests.conformance.join_views import orders


def publisher(store, log, group):
    """What a runner publishes by, into a log in memory."""
    return ViewPublisher(store, log.view_topics(), group)


def folded(log, topic):
    """The rows of a topic by their keys."""
    found = {}
    for key, value in log.records(topic):
        found.pop(key, None)
        if value is not None:
            found[key] = json.loads(value)
    return found


def rows_of(store, view):
    """The rows of a stored view as the topic should have them, by column in SQL's own words."""
    with store.looking() as connection:
        rows = connection.execute(sa.select(*(view.view.c[c] for c in view.columns))).mappings().all()
    return {key(view, row): dict(row) for row in rows}


def key(view, row):
    """The record's key of a row of whole numbers and texts."""
    return json.dumps({c: row[c] for c in view.definition.key}, separators=(",", ":")).encode()


def waiting(store):
    with store.looking() as connection:
        return outbox.waiting(connection)


class Died(BaseException):
    """The end of a process, as far as one process can show it."""


@contextlib.contextmanager
def dies_instead_of(target, name, monkeypatch):
    """A function that ends the process when it is called."""

    def die(*arguments, **options):
        raise Died(name)

    with monkeypatch.context() as patched:
        patched.setattr(target, name, die)
        yield


# ---- a view whose final results fill a topic, laid into a store by hand


LONG, TIME = ColumnType("long"), ColumnType("timestamp")
COLUMNS = {"id": LONG, "at": TIME, "amount": LONG}
NOON, EPOCH = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TOPIC = "final-rows"


def group_of(version=1, *, topic=TOPIC, name="sold", rows=None):
    @view(key="id", topic=rows, final=FinalResults("at", after="2 minutes", topic=topic))
    def sold(orders):
        return orders

    return ProjectionGroup(name, [sold], version=version)


def at(minute):
    """So many minutes after noon, in microseconds since 1970."""
    return (NOON + dt.timedelta(minutes=minute) - EPOCH) // dt.timedelta(microseconds=1)


class Finals:
    """Generations of a group in one store, whose row of each id has its time so many minutes after noon."""

    def __init__(self, store, log=None):
        self.store, self.log = store, log or MemoryLog()
        self.environment = SimpleNamespace(store=store, log=self.log)

    def built(self, group, ids):
        """A complete generation that nobody reads yet."""
        prepare_topics(self.environment, group)
        run, layout = self.store.begin_generation(group, {"sold": COLUMNS})
        self.put(layout, *ids)
        self.store.index_generation(group, layout)
        with self.store.transaction() as connection:
            runs.set_progress(connection, run, {orders.topic: {0: 0}})
            runs.update(connection, run, status=BUILT)
        return run, layout

    def put(self, layout, *ids):
        """Let the view have these rows too."""
        rows = [{"id": int(id), "at": NOON + dt.timedelta(minutes=id), "amount": int(id) * 10} for id in ids]
        schema = pa.schema([(name, kind.arrow()) for name, kind in COLUMNS.items()])
        self.store.target(layout.views["sold"].view).append(pa.Table.from_pylist(rows, schema))

    def serve(self, group, ids):
        run, layout = self.built(group, ids)
        assert self.store.switch(group, run, layout)
        return run, layout

    def serve_again(self, group, run, layout):
        """Go back to a generation that was retired."""
        prepare_topics(self.environment, group)
        run = self.store.claim(run)
        assert self.store.switch(group, run, layout)
        return run

    def give_out(self, run, layout, minute):
        """Give out what is final so many minutes after noon."""
        with self.store.transaction() as connection:
            return finals.give_out(connection, layout, run, at=at(minute)).get("sold", 0)

    def publish(self, group):
        """What a runner publishes when it opens; returns the number of records."""
        with opened_publisher(self.environment, group) as publisher:
            return 0 if publisher is None else publisher.publish()

    def ids(self, topic=TOPIC):
        """The ids of the results in the topic, as often as they are there."""
        return [json.loads(key)["id"] for key, _ in self.log.records(topic)]

    def given(self):
        """Keys and values of the results in the order they were given out, as records have them."""
        with self.store.looking() as connection:
            rows = list(finals.results_of(connection, "sold", "sold"))
        return tuple((row["key"].encode(), row["value"].encode()) for row in rows)

    def waiting(self):
        return self.store.waiting().get("sold", {})
