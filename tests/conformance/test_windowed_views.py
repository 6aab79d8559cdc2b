"""Windows and sessions in live views: what DuckDB makes of all rows, after any change in any order.

A row that comes late, moves or goes changes the windows that it was in and those that it is in now, in one batch.
"""

from __future__ import annotations

import random
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial

import duckdb
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, sql_view, verify
from projections.declaring.timing.windowed import windowed
from projections.declaring.timing.windows import cumulative, hopping, session, tumbling
from projections.reference import newest_per_key
from projections.spark.exchange import fetched
from projections.spark.session import small_batch_session
from projections.spark.timing import windowing
from projections.spark.views.view_functions import view_columns
from projections.stores.sqlite import SqliteTableStore
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.generated_views import Change
from tests.conformance.killed_batches import (
    EXAMPLES,
    OF_PARTITIONS,
    carry_in,
    drawn_batches,
    few,
    in_a_file,
    in_postgresql,
    some,
    until_a_fault_shows,
    write,
)
from tests.conformance.relational_batches import RelationalBatches, as_array, run
from tests.tiers import first_of

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]
SOME = some(4)

VISITS = sa.Table(
    "visits", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("person", sa.BigInteger),
    sa.Column("seen", sa.DateTime(timezone=True)), sa.Column("pages", sa.BigInteger),
)  # fmt: skip
visits = Table.from_changelog(VISITS, topic="site.public.visits")

in_minutes = windowed("in_minutes", visits, tumbling("1 minute"), on="seen")
in_hops = windowed("in_hops", visits, hopping("90 seconds", "60 seconds"), on="seen", columns=["pages"])
in_parts = windowed("in_parts", visits, cumulative("2 minutes", "30 seconds"), on="seen", columns=["pages"])
in_stays = windowed("in_stays", visits, session("40 seconds", by="person"), on="seen")
COUNTED = "count(*) AS visits, sum(pages) AS pages, max(seen) AS last"
VIEWS = (
    in_minutes, in_hops, in_parts, in_stays,
    sql_view("minutes", f"SELECT window_start, {COUNTED} FROM in_minutes GROUP BY window_start",
             tables={"in_minutes": in_minutes}),
    sql_view("minutes_of_persons", f"SELECT person, window_start, {COUNTED} FROM in_minutes"
             " GROUP BY person, window_start", tables={"in_minutes": in_minutes}),
    sql_view("stays", f"SELECT person, window_start, window_end, {COUNTED} FROM in_stays"
             " GROUP BY person, window_start, window_end", tables={"in_stays": in_stays}),
)  # fmt: skip
stays_in_hours = windowed("stays_in_hours", VIEWS[-1], tumbling("5 minutes"), on="window_start", named="part")
stays_per_part = sql_view(
    "stays_per_part",
    "SELECT part_start, count(*) AS stays, sum(visits) AS visits FROM stays_in_hours GROUP BY part_start",
    tables={"stays_in_hours": stays_in_hours},
)
GROUP = ProjectionGroup("site", [*VIEWS, stays_in_hours, stays_per_part])
# Those of several rows of one partition: the others are computed row by row, and grouped as any view.
STAYS = ProjectionGroup("stays", [in_hops, in_stays, VIEWS[-1], stays_in_hours, stays_per_part])

GRID = "to_timestamp(60 * floor(epoch(seen) / 60))"
SQL = {
    "in_minutes": f"SELECT *, {GRID} AS window_start, {GRID} + INTERVAL 1 MINUTE AS window_end FROM visits"
    " WHERE seen IS NOT NULL",
    "in_hops": f"""
        SELECT id, seen, pages, s AS window_start, s + INTERVAL 90 SECOND AS window_end
        FROM (SELECT *, unnest([{GRID}, {GRID} - INTERVAL 1 MINUTE]) AS s FROM visits)
        WHERE s <= seen AND seen < s + INTERVAL 90 SECOND""",
    "in_parts": """
        SELECT id, seen, pages, b AS window_start, e AS window_end FROM (
            SELECT *, b + n * INTERVAL 30 SECOND AS e FROM (
                SELECT *, to_timestamp(120 * floor(epoch(seen) / 120)) AS b FROM visits), range(1, 5) r (n))
        WHERE seen < e""",
    "in_stays": """
        WITH marked AS (
            SELECT *, CASE WHEN seen - lag(seen) OVER w <= INTERVAL 40 SECOND THEN 0 ELSE 1 END AS begins
            FROM visits WHERE seen IS NOT NULL WINDOW w AS (PARTITION BY person ORDER BY seen, id)),
        numbered AS (SELECT *, sum(begins) OVER (PARTITION BY person ORDER BY seen, id) AS n FROM marked)
        SELECT id, person, seen, pages, min(seen) OVER s AS window_start, max(seen) OVER s + INTERVAL 40 SECOND AS
            window_end FROM numbered WINDOW s AS (PARTITION BY person, n)""",
    "minutes": f"SELECT window_start, {COUNTED} FROM in_minutes GROUP BY window_start",
    "minutes_of_persons": f"SELECT person, window_start, {COUNTED} FROM in_minutes GROUP BY person, window_start",
    "stays": f"SELECT person, window_start, window_end, {COUNTED} FROM in_stays"
    " GROUP BY person, window_start, window_end",
    "stays_in_hours": """
        SELECT *, to_timestamp(300 * floor(epoch(window_start) / 300)) AS part_start,
            to_timestamp(300 * floor(epoch(window_start) / 300) + 300) AS part_end FROM stays""",
    "stays_per_part": "SELECT part_start, count(*) AS stays, sum(visits) AS visits FROM stays_in_hours"
    " GROUP BY part_start",
}


def expected(log):
    """The rows of all views, by the queries above, with the columns in the order of their names."""
    records = [(offset, key.decode(), value) for offset, (key, value) in enumerate(log.records(visits.topic))]
    rows = list(newest_per_key(records).values())
    moments = as_array([row["seen"] for row in rows], pa.timestamp("us", "UTC"))
    plain = {c: pa.array([row[c] for row in rows], pa.int64()) for c in ("id", "person", "pages")}
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("visits", pa.table({**plain, "seen": moments}))
        for name, query in SQL.items():
            engine.execute(f"CREATE TEMP TABLE {name} AS {query}")
        return {name: in_order(engine.sql(f"FROM {name}").to_arrow_table()) for name in SQL}


def in_order(table):
    """Rows as plain values: times as microseconds, whole numbers as Python's."""
    columns = sorted(table.column_names)
    return sorted(
        (tuple(map(plain, row)) for row in zip(*(table[c].to_pylist() for c in columns), strict=True)), key=repr
    )


def plain(value):
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return None if value is None else int(value)


def rows_of(store, layout, name):
    """The rows of a view as readers see them."""
    view = layout.views[name]
    return in_order(fetched(store.target(view.view), view.columns))


def assert_windows_are_right(store, layout, log, *, after):
    right = {name: rows for name, rows in expected(log).items() if name in layout.views}
    wrong = {name: (found, rows) for name, rows in right.items() if (found := rows_of(store, layout, name)) != rows}
    assert not wrong, f"after {after}: {wrong}"


class Site:
    """The views live in a store, and a writer of visits."""

    def __init__(self, spark, store):
        self.environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        self.changes = ChangeWriter(self.environment.log)
        rebuild(self.environment, GROUP)
        self.layout = store.serving(GROUP, view_columns(spark, GROUP))[1]

    def put(self, id, second, *, person=1, pages=1, at=None):
        seen = None if second is None else (MOMENT + timedelta(seconds=second)).isoformat()
        self.changes.put(visits, {"id": id, "person": person, "seen": seen, "pages": pages}, at=at)

    def delete(self, id, *, at=None):
        self.changes.delete(visits, {"id": id}, at=at)

    def rows(self, name):
        return rows_of(self.environment.store, self.layout, name)

    def check(self, after):
        assert_windows_are_right(self.environment.store, self.layout, self.environment.log, after=after)


MOMENT = datetime(1969, 12, 31, 23, 58, tzinfo=UTC)  # times before 1970 are as good as others


@pytest.fixture
def site(spark, store):
    return Site(spark, store)


@first_of("store", "SQLite", "PostgreSQL")
def test_windows_are_right_after_any_change_in_any_order(site):
    chance = random.Random(11)
    with open_runner(site.environment, GROUP) as runner:
        for number in range(5):
            for _ in range(12):
                id, late = chance.randrange(14), chance.random() < 0.2
                at = site.changes.position - chance.randrange(15) if late else None
                if chance.random() < 0.2:
                    site.delete(id, at=at)
                else:
                    second = chance.choice([None, *range(0, 300, 20)])
                    site.put(id, second, person=chance.choice([1, 2, None]), pages=chance.randrange(5), at=at)
            runner.catch_up()
            site.check(f"batch {number}")
    assert {name for name, verdict in verify(site.environment, GROUP).items() if not verdict.equal} == set()


@st.composite
def histories(draw):
    """Visits that come, move to other persons and times, go, come late, and come twice; some batches are killed."""
    seconds, or_null = st.one_of(st.none(), st.integers(0, 12)), st.sampled_from([None, 1, 2])

    def change():
        second = draw(seconds)
        seen = None if second is None else (MOMENT + timedelta(seconds=20 * second)).isoformat()
        row = {"person": draw(or_null), "seen": seen, "pages": draw(st.integers(0, 3))}
        gone = draw(st.integers(0, 4)) == 0
        return Change(0, {"id": draw(st.integers(0, 7))}, None if gone else row, draw(st.integers(0, 2)), 1)

    return drawn_batches(draw, change)


@pytest.fixture(scope="module")
def columns(spark):
    return view_columns(small_batch_session(spark), STAYS)


def asked(columns, name):
    """What DuckDB makes of slices, of which a windowed view names that of its table by itself."""
    return lambda slices: run(SQL[name], {NAMED.get(role, role): rows for role, rows in slices.items()}, columns[name])


NAMED = {"in_hops_rows": "visits", "in_stays_rows": "visits"}


def live_through(store, history, columns):
    log = MemoryLog()
    by_duckdb = {name: asked(columns, name) for name in columns}
    changes, batches = ChangeWriter(log), RelationalBatches(store, log, STAYS, by_duckdb, columns)
    layout = store.serving(STAYS, columns)[1]
    check = partial(assert_windows_are_right, store, layout, log)
    carry_in(batches, history, partial(write, changes, (visits,)), check)


def lived(folder, history, columns):
    with in_a_file(folder) as store:
        live_through(store, history, columns)


@given(history=histories())
@SOME
def test_windows_are_right_after_any_batch(columns, tmp_path, history):
    lived(tmp_path, history, columns)


@given(history=histories())
@few(SOME)
def test_windows_are_right_in_postgresql_too(columns, database, history):
    with in_postgresql(database()) as store:
        live_through(store, history, columns)


@pytest.mark.parametrize("fault", OF_PARTITIONS)
def test_a_planted_fault_of_batches_shows(fault, columns, tmp_path, monkeypatch):
    monkeypatch.setattr(*OF_PARTITIONS[fault])
    with pytest.raises(AssertionError):
        until_a_fault_shows(lambda history: lived(tmp_path, history, columns), histories(), SOME)


def stays(site):
    """Beginning and number of visits of each stay."""
    return sorted((row[-1] // 10**6 + 120, row[3]) for row in site.rows("stays"))


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
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


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
@pytest.mark.parametrize(("second", "stay"), [(40, [(0, 2)]), (41, [(0, 1), (41, 1)])])
def test_a_gap_is_part_of_a_session_to_its_end(site, second, stay):
    with open_runner(site.environment, GROUP) as runner:
        site.put(1, 0)
        site.put(2, second)
        runner.catch_up()
    assert stays(site) == stay


def test_a_planted_fault_of_sessions_shows(spark, tmp_path, monkeypatch):
    def open_each(rows, window, start, end):
        return SESSION(rows, windowing.Session(window.gap - 1, window.by), start, end)

    monkeypatch.setitem(windowing._PLACED, windowing.Session, open_each)
    with closing(SqliteTableStore(tmp_path / "site.db")) as store:
        store.prepare()
        site = Site(spark, store)
        with open_runner(site.environment, GROUP) as runner:
            site.put(1, 0)
            site.put(2, 40)
            runner.catch_up()
        with pytest.raises(AssertionError, match="in_stays"):
            site.check("a row at the end of the gap")


SESSION = windowing._PLACED[windowing.Session]
