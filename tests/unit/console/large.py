"""A large service for the console: a thousand streams, fifty views in as many groups, twenty connectors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from eventstore import ANY, SqlEventStore
from eventstore.store import StreamAppend
from factfold.discovery import Definition, Discovery
from projections import ProjectionGroup, view
from projections.declaring.columns import ColumnType
from projections.stores import runs
from projections.stores.sqlite import SqliteTableStore
from tests.unit.console.stub_connect import StubConnect
from tests.unit.console.teashop import Order, Payment, orders, review

STREAMS, VIEWS, CONNECTORS = 1_000, 50, 20
COLUMNS = {"order_id": ColumnType("string"), "quantity": ColumnType("long")}


def _view_of(number: int):
    def shown(orders):
        return orders.select("order_id", "quantity")

    shown.__name__ = shown.__qualname__ = f"orders_{number}"
    return view(key="order_id")(shown)


def definitions() -> Discovery:
    """What the large service declares."""
    groups = [ProjectionGroup(f"group_{number}", [_view_of(number)]) for number in range(VIEWS)]
    others = {"subscription": review, "process": Payment, "aggregate": Order}
    return Discovery(definitions=(
        *(Definition("projections", f"large:{group.name}", group) for group in groups),
        *(Definition(kind, f"large:{kind}", value) for kind, value in others.items()),
    ))  # fmt: skip


def fill(path: Path, declared: Discovery) -> None:
    """Streams of ten events each, and one serving generation of each group."""
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        placed = [Order.Placed(customer_id=1, quantity=number, note="tea") for number in range(10)]
        for first in range(0, STREAMS, 100):
            streams = [f"order-{number}" for number in range(first, first + 100)]
            store.append_batch([StreamAppend(stream, placed, ANY) for stream in streams])
    views = SqliteTableStore(path)
    views.prepare()
    for group in declared.groups.values():
        _serve(views, group)
    views.close()


def _serve(store: SqliteTableStore, group: ProjectionGroup) -> None:
    (shown,) = group.views
    run, layout = store.begin_generation(group, {shown.name: COLUMNS})
    rows = {"order_id": pa.array([f"o{number}" for number in range(100)]), "quantity": pa.array(range(100), pa.int64())}
    store.target(layout.views[shown.name].view).append(pa.table(rows))
    with store.transaction() as connection:
        built = {"columns": {shown.name: list(COLUMNS)}, "tables": {"orders": {}}}
        runs.set_built(connection, run, built)
    store.serve(group, run, layout, {orders.topic: {0: 9_000}})


def worker() -> StubConnect:
    """Twenty connectors, one of which FAILED."""
    stub = StubConnect()
    for number in range(CONNECTORS):
        stub.add(f"connector-{number}", failed=number == 3)
    return stub
