"""A group of views that is kept in Delta Lake, over topics in memory, and batches of it that are killed."""

from __future__ import annotations

import pytest

from projections import (
    Environment,
    ProjectionGroup,
    open_runner,
    read_views,
    rebuild,
)
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.session import small_batch_session
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance import view_oracle
from tests.conformance.join_views import (
    NAMED,
    SQL,
    customers,
    employees,
    left_join,
    orders,
)
from tests.conformance.test_joins import customer, order
from tests.conformance.view_oracle import in_order

SMALL = ProjectionGroup("pond", [left_join])


class Killed(Exception):
    """What takes the place of a kill."""


def opened(spark, path, schemas=None):
    store, log = DeltaTableStore(spark, f"delta:{path}"), MemoryLog(schemas)
    return Environment(spark, small_batch_session(spark), store, log)


def expected(log, group):
    """What DuckDB makes of the topics."""
    return view_oracle.expected(log, group, SQL, NAMED | {"bosses": employees})


def shown(environment, group):
    found = read_views(environment.spark, environment.store.place, group=group.name)
    return {view.name: in_order(tuple(row) for row in found[view.name].collect()) for view in group.views}


def made(spark, path, group=SMALL):
    """A group of one view that is served, and who writes its topics."""
    environment = opened(spark, path)
    changes = ChangeWriter(environment.log)
    changes.put(customers, customer(1))
    changes.put(orders, order(1))
    rebuild(environment, group)
    return environment, changes


def is_right(environment, group=SMALL):
    return shown(environment, group) == expected(environment.log, group)


def kill(*_, **__):
    raise Killed


def torn(environment, changes, monkeypatch):
    """A batch with a new name and a new order that comes as far as its commit; returns the ends before it."""
    ends = environment.log.end_offsets(list(SMALL.inputs))
    changes.put(customers, customer(1, name="torn"))
    changes.put(orders, order(2))
    with monkeypatch.context() as patched, open_runner(environment, SMALL) as runner:
        patched.setattr(DeltaTableStore, "advance", kill)
        with pytest.raises(Killed):
            runner.run_once()
    return ends


def go_on_without_the_order(environment, ends):
    """A batch up to the new name alone: what the torn one left of the order would show."""
    with open_runner(environment, SMALL) as runner:
        now = environment.log.end_offsets(list(SMALL.inputs))
        runner.run_once(ends={**now, orders.topic: ends[orders.topic]})
    return shown(environment, SMALL)["left_join"]
