"""Views kept in Delta Lake: a chosen set of the joins' truth table, kills between any two writes, two at once."""

from __future__ import annotations

import pytest

from projections import Environment, ProjectionGroup, open_runner, read_views, rebuild, verify
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.session import small_batch_session
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.join_views import customers_with_totals, full_join_of_some
from tests.conformance.test_joins import STEPS, expected, first_rows, in_order

GROUP = ProjectionGroup("lake", [full_join_of_some, customers_with_totals])


@pytest.fixture
def url(tmp_path):
    return f"delta:{tmp_path}/views"


@pytest.fixture
def environment(spark, url):
    return Environment(spark, small_batch_session(spark), DeltaTableStore(spark, url), MemoryLog())


def shown(spark, url, group=GROUP):
    return {
        view.name: in_order(tuple(row) for row in rows.collect())
        for view, rows in ((v, read_views(spark, url, group=group.name)[v.name]) for v in group.views)
    }


def test_views_are_right_after_a_rebuild_and_after_every_change(spark, environment, url):
    changes, steps = ChangeWriter(environment.log), list(STEPS.values())
    first_rows(changes)
    rebuild(environment, GROUP)
    assert shown(spark, url) == expected(environment.log, GROUP)
    with open_runner(environment, GROUP) as runner:
        for half in (steps[:15], steps[15:]):
            for step in half:
                step(changes)
            runner.catch_up()
            assert shown(spark, url) == expected(environment.log, GROUP)
    assert {name: verdict.equal for name, verdict in verify(environment, GROUP).items()} == {
        "full_join_of_some": True, "per_customer": True, "customers_with_totals": True,
    }  # fmt: skip
