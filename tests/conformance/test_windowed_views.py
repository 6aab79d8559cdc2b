"""Sessions in live views: a late row joins two of them, its deletion parts them, a gap ends at its last moment."""

from __future__ import annotations

from datetime import timedelta

import pytest

from projections import Environment, open_runner, rebuild
from projections.spark.session import small_batch_session
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance.window_views import GROUP, MOMENT, WORLD, rows_of, visits


class Site:
    """The views live in a store, and a writer of visits."""

    def __init__(self, spark, store):
        self.environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        self.changes = ChangeWriter(self.environment.log)
        rebuild(self.environment, GROUP)
        self._columns = WORLD.columns(spark)
        self.layout = store.serving(GROUP, self._columns)[1]

    def put(self, id, second, *, person=1, pages=1, at=None):
        seen = None if second is None else (MOMENT + timedelta(seconds=second)).isoformat()
        self.changes.put(visits, {"id": id, "person": person, "seen": seen, "pages": pages}, at=at)

    def delete(self, id, *, at=None):
        self.changes.delete(visits, {"id": id}, at=at)

    def rows(self, name):
        return rows_of(self.environment.store, self.layout, name)

    def check(self, after):
        WORLD.check(self.environment.store, self.environment.log, self._columns, after=after)


@pytest.fixture
def site(spark, store):
    return Site(spark, store)


def stays(site):
    """Beginning and number of visits of each stay."""
    return sorted((row[-1] // 10**6 + 120, row[3]) for row in site.rows("stays"))


def test_a_late_row_between_two_sessions_makes_them_one_in_one_batch_and_two_when_it_goes(site):
    with open_runner(site.environment, GROUP) as runner:
        for id, second in ((1, 0), (2, 30), (3, 110), (4, 140)):
            site.put(id, second)
        runner.catch_up()
        assert stays(site) == [(0, 2), (110, 2)]
        site.put(5, 70)
        report = runner.run_once(max_records=10)
        assert stays(site) == [(0, 5)]
        assert report.retractions > 0
        site.delete(5)
        runner.catch_up()
        assert stays(site) == [(0, 2), (110, 2)]
        site.check("the row went")


def test_a_gap_is_part_of_a_session_to_its_end(site):
    with open_runner(site.environment, GROUP) as runner:
        for id, (second, person) in enumerate([(0, 1), (40, 1), (0, 2), (41, 2)]):
            site.put(id, second, person=person)
        runner.catch_up()
    assert stays(site) == [(0, 1), (0, 2), (41, 1)]
