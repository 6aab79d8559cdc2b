"""Batches over the table store without Spark: staged as its folds would stage them.

``python -m tests.conformance.ticket_batches FILE`` applies one after another until it is killed.
"""

from __future__ import annotations

import datetime as dt
import itertools
import sys
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

from projections import ProjectionGroup, Table, view
from projections.declaring.columns import ColumnType
from projections.declaring.views import Reference
from projections.planning.planner import plan
from projections.stores import staging
from projections.stores.sqlite import SqliteTableStore
from projections.stores.staging import commit_batch
from projections.stores.view_changes import cut_slices, find_affected, stage_difference
from tests.integration.tickets import CUSTOMERS, DECLARED, Ticket

tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
customers = Table.from_changelog(CUSTOMERS, topic="shop.public.customers")


@view(key="ticket_id")
def ticket_names(tickets, customers):
    return tickets.join(customers, tickets.customer_id == customers.id, "left")


# As Spark plans it.
ticket_names = replace(ticket_names, declared=(Reference("tickets", ("customer_id",), "customers"),))
GROUP = ProjectionGroup("tickets", [ticket_names])
COLUMNS = {"ticket_names": {"ticket_id": ColumnType("string"), "hours": ColumnType("decimal", 18, 4),
                            "since": ColumnType("date")}}  # fmt: skip


def rows(columns, **values):
    """An Arrow table of the columns' types."""
    return pa.table({c: pa.array(v, columns[c].arrow() if c in columns else None) for c, v in values.items()})


def stage_ticket(store, layout, identity, version, *, customer=1, hours="1.5", first=None):
    """Stage one ticket's last event, as the fold in Spark would; ``first`` begins the versions that end in it."""
    at = [version]
    store.target(layout.tables["tickets"].staged).append(
        rows(tickets.columns, ticket_id=[identity], customer_id=[customer], hours=[Decimal(hours)], status=["open"],
             _at_customer_id=at, _at_hours=at, _at_status=at, _epoch=[0], _pos=at, _offset=at, _deleted=[False],
             _first=at if first is None else [first])
    )  # fmt: skip


def stage_customer(store, layout, position, *, deleted=False, note="a note", epoch=0):
    at = [position]
    store.target(layout.tables["customers"].staged).append(
        rows(customers.columns, id=[1], name=["Ann"], region_id=[None], note=[note], since=[dt.date(2013, 1, 2)],
             _at_name=at, _at_note=at if note else [None], _epoch=[epoch], _pos=at, _offset=at, _deleted=[deleted])
    )  # fmt: skip


def result(store, layout, *keys, hours="1.5"):
    columns = COLUMNS["ticket_names"]
    store.target(layout.views["ticket_names"].result).append(
        rows(columns, ticket_id=list(keys), hours=[Decimal(hours)] * len(keys), since=[None] * len(keys))
    )


def served(store):
    """An empty generation that serves."""
    run, layout = store.begin_generation(GROUP, COLUMNS)
    store.index_generation(GROUP, layout)
    store.serve(GROUP, run, layout, {"ticket": {0: 0}})
    return run, layout


def one_ticket(store):
    """A generation that serves, with a ticket of customer 1 as a batch leaves it; returns its run."""
    run, layout = served(store)

    def stage():
        stage_ticket(store, layout, "t1", 4, first=0)
        stage_customer(store, layout, 9)

    batch(store, run, layout, stage, "t1", to=1)
    return run


def batch(store, run, layout, stage, *keys, to, start=None, hours="1.5"):
    """One batch: stage, complete, reach the view, take the difference, commit; returns (upserts, retractions)."""
    with store.staging(run) as connection:
        mark = staging.begin(connection, layout)
    stage()
    with store.staging(run) as connection:
        for tables in layout.tables.values():
            staging.complete(connection, tables)
        find_affected(connection, layout, layout.views["ticket_names"], plan(ticket_names))
        cut_slices(connection, layout.views["ticket_names"], plan(ticket_names))
    result(store, layout, *keys, hours=hours)
    with store.staging(run) as connection:
        changed = stage_difference(connection, layout.views["ticket_names"], plan(ticket_names))
    with store.transaction() as connection:
        begun, end = {"ticket": {0: to - 1 if start is None else start}}, {"ticket": {0: to}}
        commit_batch(connection, layout, run, start=begun, end=end, mark=mark)
    return changed


def main(path: str) -> None:
    """Batch after batch, each giving the one ticket and its view row the number of the batch as hours."""
    store = SqliteTableStore(path)
    run, layout = store.serving(GROUP, COLUMNS)
    run = store.claim(run)
    done = store.progress(run)["ticket"][0]
    for number in itertools.count(done + 1):
        stage = _staged(store, layout, number)
        batch(store, run, layout, stage, "t1", to=number, hours=str(number))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def _staged(store, layout, number):
    return lambda: stage_ticket(store, layout, "t1", number - 1, hours=str(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
