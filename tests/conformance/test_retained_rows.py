"""What is forgotten in a database: by a floor that only rises, some rows at a time, and nothing that is still read."""

from __future__ import annotations

import datetime as dt

import pytest
import sqlalchemy as sa

from eventstore import Aggregate, event
from projections import ProjectionGroup, Reach, Retain, Stream, sql_view, tumbling, windowed
from projections.declaring.columns import ColumnType
from projections.declaring.tables import EVENT_TIME
from projections.errors import CodeFailed, ProjectionError
from projections.planning.planner import plan
from projections.stores import forgetting
from projections.stores.view_changes import find_affected, stage_difference
from tests.errors import raises

pytestmark = pytest.mark.postgres_in_faults

SECOND = 1_000_000
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
LONG, TEXT, TIME = ColumnType("long"), ColumnType("string"), ColumnType("timestamp")


class Reading(Aggregate):
    @event
    class Taken:
        meter: str
        at: dt.datetime


readings = Stream.from_events(Reading, events=Reading.Taken, key="entry", id="reading", time="at", name="readings",
                              retain=Retain("1 minute"))  # fmt: skip
in_minutes = windowed("in_minutes", readings, tumbling("1 minute"), on="at")
minutes = sql_view("minutes", "SELECT window_start, count(*) AS n FROM in_minutes GROUP BY window_start",
                   tables={"in_minutes": in_minutes}, by="window_start")  # fmt: skip
shown = sql_view("shown", "SELECT meter, entry, at FROM readings", by="meter", key="entry",
                 tables={"readings": readings}, reach=Reach("1 minute", on="at"))  # fmt: skip
GROUP = ProjectionGroup("meters", [minutes, shown])
ROWS = {"entry": TEXT, "reading": TEXT, "meter": TEXT, "at": TIME}
COLUMNS = {
    "in_minutes": {**ROWS, "window_start": TIME, "window_end": TIME},
    "minutes": {"window_start": TIME, "n": LONG},
    "shown": {"meter": TEXT, "entry": TEXT, "at": TIME},
}


class Generation:
    """A generation whose rows are put into its tables by hand."""

    def __init__(self, store):
        self.store = store
        self.run, self.layout = store.begin_generation(GROUP, COLUMNS)
        store.index_generation(GROUP, self.layout)

    def put(self, table, *rows):
        with self.store.transaction() as connection:
            for row in rows:
                connection.execute(sa.insert(table).values({k: self.stored(v) for k, v in row.items()}))

    def stored(self, value):
        in_text = isinstance(value, dt.datetime) and self.store.dialect.name_space("x").dialect.has_exact_types is False
        return value.strftime("%Y-%m-%d %H:%M:%S.%fZ") if in_text else value

    def reading(self, number, second, *, deleted=False):
        return {"entry": f"r{number}@0", "reading": f"r{number}", "meter": None, "at": at(second),
                EVENT_TIME: None if deleted else micros(second), "_epoch": 0, "_pos": 0, "_offset": number,
                "_deleted": deleted}  # fmt: skip

    def staged(self, *numbers, **others):
        return {**self.reading(*numbers, **others), "_late": 0}

    def entries(self, table):
        with self.store.transaction() as connection:
            return sorted(int(row.entry[1:-2]) for row in connection.execute(sa.select(table.c.entry)))

    def forget(self, upto=None, most=100):
        return dict(self.store.forget(self.run, self.layout, upto=upto and micros(upto), most=most))


def at(second):
    return NOON + dt.timedelta(seconds=second)


def micros(second):
    return (at(second) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


@pytest.fixture
def generation(store):
    return Generation(store)


@pytest.mark.both_databases
def test_rows_before_the_floor_go_some_at_a_time_and_the_deleted_ones_stay_marked(generation):
    state = generation.layout.tables["readings"].state
    generation.put(state, *(generation.reading(n, n * 60) for n in range(7)))
    generation.put(state, generation.reading(7, 0, deleted=True), {**generation.reading(8, 0), "_deleted": True})
    assert generation.forget() == {}  # without a floor nothing goes
    # A view with a reach of a minute reads two minutes back.
    assert [generation.forget(upto, most=2) for upto in (360, None, None)] == [
        {"state_readings": 2},
        {"state_readings": 2},
        {},
    ]
    assert generation.entries(state) == [4, 5, 6, 7, 8]
    found = generation.store.retained(generation.run)
    assert found["forgotten"] == {"state_readings": 4, "view_in_minutes": 0}
    assert found["upto"] == at(360).isoformat()


def test_the_floor_only_rises(generation):
    for upto in (600, 300):
        generation.forget(upto)
    assert generation.store.retained(generation.run)["upto"] == at(600).isoformat()


@pytest.mark.both_databases
def test_rows_of_a_windowed_view_go_once_their_window_is_over_with_a_null_in_their_key_too(generation):
    view = generation.layout.views["in_minutes"].view
    for n in range(5):
        begin = at(n * 60)
        row = {"entry": f"r{n}@0", "reading": None, "meter": None, "at": begin}
        generation.put(view, {**row, "window_start": begin, "window_end": at(n * 60 + 60)})
    assert generation.forget(180, most=1) == {"view_in_minutes": 1}
    assert generation.entries(view) == [1, 2, 3, 4]
    assert generation.forget() == {"view_in_minutes": 1}
    assert generation.entries(view) == [2, 3, 4]  # that of 12:02 is of a window that ends at the floor


@pytest.mark.both_databases
def test_staged_rows_from_before_the_floor_are_left_out(generation):
    tables = generation.layout.tables["readings"]
    generation.forget(120)
    generation.put(tables.staged, *(generation.staged(n, n * 60) for n in range(4)))
    with generation.store.transaction() as connection:
        assert forgetting.leave_out(connection, generation.layout, tables)
        assert not forgetting.leave_out(connection, generation.layout, tables)
    assert generation.entries(tables.staged) == [2, 3]


def test_staged_rows_that_only_late_events_make_are_left_out(generation):
    tables = generation.layout.tables["readings"]
    generation.put(tables.staged, *({**generation.reading(n, 0), "_late": n} for n in range(3)))
    with generation.store.transaction() as connection:
        assert forgetting.leave_out(connection, generation.layout, tables)
    assert generation.entries(tables.staged) == [0, 1]


def test_a_deletion_stops_the_run_once_rows_are_forgotten_unless_it_is_known(generation):
    tables = generation.layout.tables["readings"]
    generation.put(tables.state, generation.reading(1, 0, deleted=True))
    generation.put(tables.staged, generation.staged(1, 0, deleted=True), generation.staged(2, 0, deleted=True))
    with generation.store.transaction() as connection:
        forgetting.leave_out(connection, generation.layout, tables)  # nothing is forgotten yet
    generation.forget(120)
    with raises(ProjectionError, code="rows-forgotten") as caught, generation.store.transaction() as connection:
        forgetting.leave_out(connection, generation.layout, tables)
    assert caught.value.place == "topic reading, key r2@0"
    assert "rebuild" in caught.value.remedy


@pytest.mark.both_databases
def test_frozen_rows_of_a_view_with_a_reach_are_neither_replaced_nor_retracted(generation):
    layout, view = generation.layout, generation.layout.views["shown"]
    rows = [{"meter": "m", "entry": f"r{n}@0", "at": at(n * 60)} for n in range(4)]
    generation.put(view.view, *rows)
    generation.forget(180)  # rows from before 12:02 are final
    generation.put(view.result, {**rows[0], "at": at(1)}, {**rows[3], "at": at(181)})
    generation.put(layout.tables["readings"].staged, {**generation.staged(3, 180), "meter": "m"})
    walk = plan(view.definition)
    with generation.store.transaction() as connection:
        find_affected(connection, layout, view, walk)
        frozen = forgetting.frozen_before(connection, layout, view)
        assert stage_difference(connection, view, walk, frozen=frozen) == (1, 1)
        changed = connection.execute(sa.select(view.result.c.entry, view.result.c["_deleted"])).all()
    assert sorted(changed) == [("r2@0", True), ("r3@0", False)]


def test_a_row_without_the_time_that_its_reach_counts_from_is_refused(generation):
    view = generation.layout.views["shown"]
    generation.put(view.result, {"meter": "m", "entry": "r1@0", "at": None})
    with pytest.raises(CodeFailed, match="a row without 'at'"), generation.store.transaction() as connection:
        stage_difference(connection, view, plan(view.definition))
