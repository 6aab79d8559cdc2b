"""With a promise of how late events may be, states stop growing, and results are those of all events for ever.

The engine to compare with is DuckDB, over every event whose record keeps the promise, however the log was cut.
"""

from __future__ import annotations

import datetime as dt
import random
from contextlib import ExitStack

import duckdb
import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import (
    Environment,
    ProjectionGroup,
    Reach,
    Retain,
    Stream,
    join_within,
    open_runner,
    rebuild,
    sql_view,
    tumbling,
    verify,
    view,
    windowed,
)
from projections.errors import ProjectionError
from projections.lifecycle import between_batches
from projections.spark.exchange import fetched
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores import dialects
from projections.testing.memory_log import MemoryLog
from tests.conformance.window_views import in_order
from tests.errors import raises


class Search(Aggregate):
    @event
    class Done:
        session: int
        at: dt.datetime


class Click(Aggregate):
    @event
    class Made:
        session: int
        at: dt.datetime


LATE = 120  # seconds
PROMISE = Retain(late="2 minutes", delivered="0 seconds")
searches, clicks = (
    Stream.from_events(kind, events=event, key="entry", id="name", time="at", name=name, retain=PROMISE)
    for name, kind, event in (("searches", Search, Search.Done), ("clicks", Click, Click.Made))
)
in_minutes = windowed("in_minutes", searches, tumbling("1 minute"), on="at")
minutes = sql_view("minutes", "SELECT window_start, count(*) AS n, sum(session) AS sessions FROM in_minutes"
                   " GROUP BY window_start", tables={"in_minutes": in_minutes})  # fmt: skip
in_threes = windowed("in_threes", minutes, tumbling("3 minutes"), on="window_start", named="part")
threes = sql_view("threes", "SELECT part_start, sum(n) AS n, count(*) AS minutes FROM in_threes GROUP BY part_start",
                  tables={"in_threes": in_threes})  # fmt: skip


@view(by="session", key=("entry", "click"), reach=Reach("30 seconds", on="at"))
def answers(searches, clicks):
    return join_within(
        searches.select("session", "entry", "at"), clicks, on="session", times=("at", "at"),
        lower="-10 seconds", upper="30 seconds", take={"click": "entry"},
    )  # fmt: skip


in_rates = windowed("in_rates", answers, tumbling("1 minute"), on="at")


@view(by="window_start")
def rates(in_rates):
    return in_rates.groupBy("window_start").agg(
        F.count_distinct("entry").alias("searches"), F.count("click").alias("clicks")
    )


SMALL = ProjectionGroup("shop", [minutes])
WHOLE = ProjectionGroup("shop", [minutes, threes, rates])
WITH_ROWS = ProjectionGroup("shop", [minutes, threes, answers, rates])
SQL = {
    "minutes": "SELECT date_trunc('minute', time) AS window_start, count(*) AS n, sum(session) AS sessions"
    " FROM searches GROUP BY 1",
    "threes": "SELECT to_timestamp(180 * floor(epoch(time) / 180)) AS part_start, count(*) AS n,"
    " count(DISTINCT date_trunc('minute', time)) AS minutes FROM searches GROUP BY 1",
    "answers": 'SELECT s.session, s.entry, s.time AS "at", c.entry AS click FROM searches s LEFT JOIN clicks c'
    " ON s.session = c.session AND c.time BETWEEN s.time - INTERVAL 10 SECOND AND s.time + INTERVAL 30 SECOND",
    "rates": "SELECT date_trunc('minute', \"at\") AS window_start, count(DISTINCT entry) AS searches,"
    " count(click) AS clicks FROM answers GROUP BY 1",
}
NOON, EPOCH = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Shop:
    """Events with their times of recording, a clock, and the runner, which may be started anew at any time."""

    def __init__(self, spark, store, monkeypatch, group):
        self.store, self.group, self.now = store, group, NOON
        kinds = {k.schema_id: k.registered for one in (Search, Click) for k in one.event_types.values()}
        self.log = MemoryLog(kinds)
        self.environment = Environment(spark, small_batch_session(spark), store, self.log)
        self.events: list[tuple[str, str, int, dt.datetime, dt.datetime]] = []
        self._held, self._runner, self._count = ExitStack(), None, 0
        monkeypatch.setattr(between_batches, "_LOOK_FOR_OLD_SECONDS", 0.0)
        monkeypatch.setattr(dialects, "now", lambda connection: (self.now - EPOCH) // dt.timedelta(microseconds=1))
        rebuild(self.environment, group)

    @property
    def runner(self):
        if self._runner is None:
            self._runner = self._held.enter_context(open_runner(self.environment, self.group))
        return self._runner

    def stop(self):
        self._held.close()
        self._runner = None

    def search(self, ago=0, *, session=1, recorded=0):
        """A search so many seconds ago, recorded so many seconds ago."""
        self._record("searches", Search, Search.Done, ago, session, recorded)

    def click(self, ago=0, *, session=1, recorded=0):
        self._record("clicks", Click, Click.Made, ago, session, recorded)

    def _record(self, name, kind, event, ago, session, recorded):
        at, recorded = (self.now - dt.timedelta(seconds=s) for s in (ago, recorded))
        self._count += 1
        self.events.append((name, f"{self._count}@0", session, at, recorded))
        self.write(-1)

    def write(self, number):
        """Append an event to its topic; again, where it is there already."""
        name, entry, session, at, recorded = self.events[number]
        kind, made = (Search, Search.Done) if name == "searches" else (Click, Click.Made)
        value = made(session=session, at=at)
        self.log.append(kind.category, f"{kind.category}-{entry}".encode(), event_type_of(value).encode(value),
                        time=recorded)  # fmt: skip

    def delete(self, number):
        name, entry, *_ = self.events[number]
        self.log.append({"searches": "search", "clicks": "click"}[name], f"search-{entry}".encode(), None)

    def catch_up(self):
        """Apply what there is; the runner looks once more behind it."""
        self.runner.catch_up()
        self.runner.run_once()

    def sizes(self):
        """The rows of states, and of views that others read."""
        _, layout = self.store.serving(self.group, view_columns(self.environment.spark, self.group))
        listed = {view.name for view in self.group.views}
        tables = {name: place.state for name, place in layout.tables.items()}
        tables |= {name: place.view for name, place in layout.views.items() if name not in listed}
        with self.store.transaction() as connection:
            return {n: connection.scalar(sa.select(sa.func.count()).select_from(t)) for n, t in tables.items()}

    def rows(self, name):
        _, layout = self.store.serving(self.group, view_columns(self.environment.spark, self.group))
        place = layout.views[name]
        return in_order(fetched(self.store.target(place.view), place.columns))

    def standing(self):
        (row,) = [row for row in self.store.generations() if row["status"] == "serving"]
        return row["retained"]

    def expected(self):
        """By DuckDB, over all events whose records keep the promise."""
        kept = [e for e in self.events if e[4] - e[3] <= dt.timedelta(seconds=LATE)]
        with duckdb.connect() as engine:
            engine.execute("SET TimeZone = 'UTC'")
            for table in ("searches", "clicks"):
                rows = [e[1:4] for e in kept if e[0] == table]
                names = {"entry": pa.string(), "session": pa.int64(), "time": pa.timestamp("us", "UTC")}
                columns = {n: pa.array([row[i] for row in rows], t) for i, (n, t) in enumerate(names.items())}
                engine.register(f"{table}_rows", pa.table(columns))
                engine.execute(f"CREATE TEMP TABLE {table} AS FROM {table}_rows")
            for name, query in SQL.items():
                engine.execute(f"CREATE TEMP TABLE {name} AS {query}")
            return {view.name: in_order(engine.sql(f"FROM {view.name}").to_arrow_table()) for view in self.group.views}

    def check(self):
        right = self.expected()
        assert {name: self.rows(name) for name in right} == right
        assert {name for name, verdict in verify(self.environment, self.group).items() if not verdict.equal} == set()

    def require_rebuilt_alike(self):
        self.stop()
        report = rebuild(self.environment, self.group)
        assert (report.serves, report.differs, report.not_compared) == (True, False, None)


@pytest.fixture
def shop(request, spark, store, monkeypatch):
    opened = Shop(spark, store, monkeypatch, getattr(request, "param", WHOLE))
    yield opened
    opened.stop()


def grows(shop, *, minutes=14, from_the=7):
    """Whether states are larger after some minutes of equal work than they were before."""
    sizes = []
    for minute in range(minutes):
        shop.now = NOON + dt.timedelta(minutes=minute)
        for second in (0, 20, 40):
            shop.search(second)
            shop.click(second - 5)
        shop.catch_up()
        sizes.append(shop.sizes())
    return sizes[from_the], sizes[-1]


@pytest.mark.postgres_in_faults
def test_states_are_as_large_after_many_windows_as_after_a_few(shop):
    few, many = grows(shop)
    assert many == few
    assert sum(few.values()) < 80
    shop.check()


@pytest.mark.postgres_in_faults
@pytest.mark.parametrize("shop", [WITH_ROWS], indirect=True)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.faults)])
def test_results_are_those_of_all_events_however_the_log_is_cut_and_runs_are_stopped(shop, seed, monkeypatch):
    known = between_batches.Retaining.forget  # runs stop with rows that are to go and are there, as a killed one does
    monkeypatch.setattr(between_batches.Retaining, "forget", lambda self, at, to_the_end: known(self, at))
    monkeypatch.setattr(between_batches, "STEP_ROWS", 2)
    monkeypatch.setattr(between_batches, "_MOST_SECONDS", 0.0)
    chance = random.Random(seed)
    for minute in range(12):
        shop.now = NOON + dt.timedelta(minutes=minute)
        for _ in range(chance.randrange(4, 9)):
            ago, session = chance.choice([0, 5, 30, 60, 119, 120, 121, 300]), chance.randrange(3)
            (shop.search if chance.random() < 0.6 else shop.click)(ago, session=session)
        for _ in range(2):
            shop.write(chance.randrange(len(shop.events)))  # as its producer may repeat it
        if chance.random() < 0.6:
            shop.runner.run_once(max_records=chance.randrange(1, 12))
        if chance.random() < 0.3:
            shop.stop()
        if chance.random() < 0.5:
            shop.catch_up()
    shop.catch_up()
    shop.check()
    told = shop.standing()
    assert set(told["forgotten"]) == {
        "state_searches", "state_clicks", "view_in_minutes", "view_in_threes", "view_in_rates"
    }  # fmt: skip
    assert min(told["forgotten"].values()) > 0
    assert min(told["set_aside"].get(kind, 0) for kind in ("too_late", "forgotten")) > 0
    shop.require_rebuilt_alike()
    shop.search()
    shop.catch_up()
    shop.check()


@pytest.mark.parametrize("shop", [SMALL], indirect=True)
@pytest.mark.postgres_in_faults
def test_late_events_are_told_and_stop_nothing_and_a_repeated_one_is_not_counted_twice(shop):
    shop.search()
    shop.search(120)
    shop.search(121)
    assert shop.runner.run_once().set_aside == {"too_late": 1}
    shop.now += dt.timedelta(minutes=10)
    shop.search()
    shop.catch_up()
    shop.write(0)
    assert shop.runner.run_once().set_aside == {"forgotten": 1}
    shop.check()
    assert shop.standing()["set_aside"] == {"too_late": 1, "forgotten": 1}
    shop.require_rebuilt_alike()
    assert shop.standing()["set_aside"] == {"too_late": 1, "forgotten": 1}  # the same records, for the same reasons
    shop.check()


@pytest.mark.parametrize("shop", [SMALL], indirect=True)
def test_what_was_delivered_after_its_rows_were_forgotten_is_left_out_of_rebuilds_too(shop):
    shop.search()
    shop.now += dt.timedelta(minutes=10)
    shop.search()
    shop.catch_up()
    shop.search(600, recorded=600)  # its record keeps the promise, and was not there
    assert shop.runner.run_once().set_aside == {"forgotten": 1}
    gone = shop.events.pop()
    shop.check()
    shop.require_rebuilt_alike()
    shop.check()
    shop.events.append(gone)
    again = ProjectionGroup("shop", [minutes], version=2)
    assert rebuild(shop.environment, again).serves  # another definition reads it
    shop.group = again
    shop.check()


@pytest.mark.parametrize("shop", [SMALL], indirect=True)
def test_a_deletion_stops_the_run_and_a_rebuild_goes_on(shop):
    shop.search()
    shop.search()
    shop.catch_up()
    shop.now += dt.timedelta(minutes=10)
    shop.search()
    shop.catch_up()
    shop.delete(1)
    with raises(ProjectionError, code="rows-forgotten"):
        shop.catch_up()
    shop.stop()
    rebuild(shop.environment, shop.group)
    del shop.events[1]
    shop.check()
    shop.search()
    shop.catch_up()
    shop.check()
