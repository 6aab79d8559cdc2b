"""Deleted rows of a state in Delta Lake go at the horizon, and what may be of one of them is told.

The same rules in databases: tests/conformance/test_horizon.py. A run of it all: tests/faults/test_lakehouse.py.
"""

from __future__ import annotations

import time

import pytest
import sqlalchemy as sa

from eventstore import Aggregate, event
from projections import Table, on
from projections.declaring.tables import BELOW_STREAMED
from projections.errors import OlderThanHorizon
from projections.spark.lakehouse import horizon
from projections.spark.lakehouse.completing import Staged
from projections.spark.lakehouse.materialized import union
from projections.spark.lakehouse.places import StatePlace
from projections.spark.lakehouse.versioned import VersionedTable
from projections.stores.horizon import Passed
from tests.spark.test_lakehouse_rows import counted, row


class Piece(Aggregate):
    @event
    class Cut:
        length: int


pieces = Table.from_events(Piece, key="id", columns={"length": on(Piece.Cut).take("length")})
history = Table.versions_of(
    sa.Table("history", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True)), topic="history-rows"
)
LONG_AGO, NOW = 1_000, int(time.time())


def place_of(small, folder, table, *rows):
    """A state of some rows, and its version."""
    place = StatePlace(table, VersionedTable(small, str(folder / "state"), "state"))
    return place, place.state.replace(union([row(small, table, _offset=1, **values) for values in rows]))


def left(place, version, *columns):
    """Some columns of the rows that a version has."""
    return sorted(tuple(found) for found in place.state.rows(version).select(*columns).collect())


def test_rows_that_are_due_go_and_how_far_in_the_source_is_kept(small, tmp_path):
    long_ago = {"_deleted": True, "_at": LONG_AGO}
    place, at = place_of(
        small, tmp_path, counted, {"id": 1, "_pos": 10}, {"id": 2, "_pos": 20, **long_ago},
        {"id": 3, "_pos": 15 - BELOW_STREAMED, **long_ago}, {"id": 4, "_pos": 40, "_deleted": True, "_at": NOW},
    )  # fmt: skip
    assert horizon.let_go(place, at=at, before=LONG_AGO - 1) is None
    version, gone = horizon.let_go(place, at=at, before=LONG_AGO)
    assert (left(place, version, "id"), gone) == ([(1,), (4,)], Passed(0, 20, settled=2))
    assert Passed(0, 30, 1).and_then(gone) == Passed(0, 30, 3)
    assert Passed(0, 30, 1).and_then(Passed(1, 5, 1)) == Passed(1, 5, 2)


def test_a_deleted_stream_is_emptied_and_stays(small, tmp_path):
    place, at = place_of(
        small, tmp_path, pieces, {"id": "one", "length": 5, "_pos": 3},
        {"id": "two", "length": 7, "_pos": 3, "_deleted": True, "_at": LONG_AGO},
    )  # fmt: skip
    version, gone = horizon.let_go(place, at=at, before=LONG_AGO)
    assert left(place, version, "id", "length", "_pos", "_deleted") == [("one", 5, 3, False), ("two", None, 3, True)]
    assert gone.settled == 1
    assert horizon.let_go(place, at=version, before=LONG_AGO) is None


def test_versions_of_rows_stay(small):
    place = StatePlace(history, VersionedTable(small, "/nowhere", "state"))
    assert horizon.let_go(place, at=0, before=NOW) is None


def test_a_change_that_may_be_of_a_row_that_went_is_refused(small):
    known = row(small, counted, id=1, amount=1, _pos=10, _offset=1)

    def staged(pos, *, id=2, deleted=False, passed=Passed(0, 20, 1)):  # noqa: B008 - it is frozen
        brought = row(small, counted, id=id, amount=5, _at_amount=pos, _pos=pos, _offset=9, _deleted=deleted)
        return Staged.of(brought, counted, known, passed).whole().count

    with pytest.raises(OlderThanHorizon, match="topic counted-rows, key 2"):
        staged(20)
    with pytest.raises(OlderThanHorizon):
        staged(20 - BELOW_STREAMED)
    assert [staged(21), staged(20, id=1), staged(20, deleted=True), staged(20, passed=None)] == [1, 1, 1, 1]


def test_how_far_is_kept_in_a_table_of_its_own(small, tmp_path):
    table = VersionedTable(small, str(tmp_path / "horizon"), "horizon")
    assert horizon.read_passed(table, at=None) == {}
    first = horizon.write_passed(table, {"one": Passed(0, 7, 1)}, at=None)
    then = horizon.write_passed(table, {"one": Passed(1, 3, 2), "two": Passed(0, 9, 1)}, at=first)
    assert horizon.read_passed(table, at=then) == {"one": Passed(1, 3, 2), "two": Passed(0, 9, 1)}
    assert horizon.read_passed(table, at=first) == {"one": Passed(0, 7, 1)}


def test_a_state_that_was_built_without_times_gets_them_once(small, tmp_path):
    place, at = place_of(small, tmp_path, counted, {"id": 1, "_pos": 10}, {"id": 2, "_pos": 20, "_deleted": True})
    assert horizon.ensure(place, at=at) is None
    before = place.state.replace(place.state.rows(at).drop("_at"))
    after = horizon.ensure(place, at=before)
    there, deleted = left(place, after, "id", "_at")
    assert there == (1, None)
    assert deleted[1] >= NOW
