"""A view whose final results fill a topic, laid into a store by hand: no Spark, no broker, a clock that is given."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace

import pyarrow as pa

from projections import FinalResults, ProjectionGroup, view
from projections.declaring.columns import ColumnType
from projections.outputs.publishing import opened_publisher, prepare_topics
from projections.stores import finals, runs
from projections.stores.runs import BUILT
from projections.testing.memory_log import MemoryLog
from tests.conformance.join_views import orders

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
            runs.set_status(connection, run, BUILT)
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
