"""Patterns in Delta Lake. On SQLite and PostgreSQL they are in tests/conformance/test_followed_views.py."""

from __future__ import annotations

from projections import open_runner, rebuild
from projections.testing.change_events import ChangeWriter
from tests.conformance.followed_views import random_batches, write
from tests.conformance.pattern_views import GROUP, ROWS, VALUES, expected
from tests.lakehouse import opened, shown


def test_delta_keeps_matches_too(spark, tmp_path):
    environment = opened(spark, tmp_path / "lake")
    rebuild(environment, GROUP)
    changes = ChangeWriter(environment.log)
    with open_runner(environment, GROUP) as runner:
        for batch in random_batches(11, ROWS, VALUES.get, batches=3, ids=9, changes=10):
            write(changes, ROWS, batch)
            runner.catch_up()
    assert shown(environment, GROUP) == expected(environment.log)
