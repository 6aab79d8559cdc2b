"""A change of one row in a long partition costs the rows near to it, whatever looks at them."""

from __future__ import annotations

import sqlalchemy as sa

from projections.testing.memory_log import MemoryLog
from tests.conformance.followed_views import Batch, in_a_file
from tests.conformance.near_views import WORLD, long_history
from tests.conformance.relational_batches import RelationalBatches


class _Slices(RelationalBatches):
    """Notes how many rows each slice of a batch had."""

    def _keep(self, view):
        super()._keep(view)
        with self._store.transaction() as connection:
            for name, role in view.roles.items():
                count = connection.scalar(sa.select(sa.func.count()).select_from(role.slice))
                self.sizes[view.name, name] = count


def test_a_change_costs_the_rows_near_to_it(spark, tmp_path):
    first, second, *_ = long_history(1)
    with in_a_file(tmp_path) as store:
        log = MemoryLog()
        batches = _Slices(store, log, WORLD.group, WORLD.computed, WORLD.columns(spark))
        batches.sizes, written = {}, WORLD.writing(log)
        for changes in (first.changes, second.changes[:1]):
            written(Batch(changes, None))
            batches.catch_up()
    assert len(batches.sizes) > 9
    assert max(batches.sizes.values()) < 25, batches.sizes
