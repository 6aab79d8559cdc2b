"""A runner looks for final results twice a second: it writes, and takes the database's lock, only where one is due."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from projections.lifecycle.between_batches import FinalsDue
from tests.conformance.final_rows import Finals, at, group_of

pytestmark = pytest.mark.postgres_in_faults


class Looks:
    """The looks of a runner, whose transactions are counted."""

    def __init__(self, store):
        self.shop, self.transactions = Finals(store), 0
        self.run, self.layout = self.shop.serve(group_of(), [0, 5])
        self._due = FinalsDue(self, self.run, self.layout)

    def looking(self):
        return self.shop.store.looking()

    def transaction(self):
        self.transactions += 1
        return self.shop.store.transaction()

    def at(self, minute):
        """Look so many minutes after noon; how many results were given out, in how many transactions."""
        self.transactions = 0
        return self._due.give_out(at(minute)).get("sold", 0), self.transactions


@pytest.fixture
def looks(store):
    return Looks(store)


@pytest.mark.both_databases
def test_a_look_opens_a_transaction_only_where_a_result_is_due_or_a_minute_has_passed(looks):
    assert looks.at(1) == (0, 1)  # notes when the first one is due
    assert [looks.at(1 + second / 60) for second in range(3)] == [(0, 0)] * 3
    assert looks.at(2) == (1, 1)
    assert [looks.at(2), looks.at(2.9)] == [(0, 0)] * 2
    assert [looks.at(3.1), looks.at(3.1)] == [(0, 1), (0, 0)]  # how far time has come is noted once a minute
    assert [looks.at(7), looks.at(7)] == [(1, 1), (0, 0)]


def test_a_generation_that_serves_no_more_opens_none(looks):
    looks.shop.serve(group_of(2), [0])
    assert looks.at(30) == (0, 0)


def test_a_row_whose_time_passed_since_the_last_note_is_given_out_though_nothing_was_due(looks):
    looks.at(3)
    looks.shop.put(looks.layout, 1.2)
    assert [looks.at(3.3), looks.at(3.3)] == [(1, 1), (0, 0)]


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
def test_a_row_whose_time_moves_on_is_not_given_out_again(looks):
    assert looks.at(2)[0] == 1
    with looks.shop.store.transaction() as connection:
        connection.execute(sa.delete(looks.layout.views["sold"].view))
    looks.shop.put(looks.layout, 0.5)
    assert looks.at(2.9)[0] == 0
