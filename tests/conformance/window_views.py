"""Windows and sessions over visits, and the same as queries of DuckDB over all rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import sqlalchemy as sa
from hypothesis import strategies as st

from projections import ProjectionGroup, Table, sql_view
from projections.declaring.timing.windows import cumulative, hopping, session, tumbling
from projections.declaring.view_decorator import windowed
from projections.spark.exchange import fetched
from tests.conformance.followed_views import World, followed, histories_of, random_batches
from tests.conformance.relational_batches import as_array
from tests.reference import newest_per_key

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
    return value if value is None or isinstance(value, str) else int(value)


def rows_of(store, layout, name):
    """The rows of a view as readers see them."""
    view = layout.views[name]
    return in_order(fetched(store.target(view.view), view.columns))


def shown(store, layout):
    """The rows of all views."""
    return {name: rows_of(store, layout, name) for name in layout.views}


MOMENT = datetime(1969, 12, 31, 23, 58, tzinfo=UTC)  # times before 1970 are as good as others
TIMES = [None, *((MOMENT + timedelta(seconds=second)).isoformat() for second in range(0, 260, 20))]
VALUES = {"person": [None, 1, 2], "seen": TIMES, "pages": [0, 1, 2, 3]}
WORLD = World(GROUP, (visits,), SQL, expected, shown)
# A windowed view names the slice of its table by itself.
SLICED = {name: SQL[name].replace("FROM visits", f"FROM {name}_rows") for name in ("in_hops", "in_stays")}
BY_SLICES = World(STAYS, (visits,), SQL | SLICED, expected, shown)
FOLLOWED = replace(
    followed(
        BY_SLICES,
        histories_of((visits,), lambda column: st.sampled_from(VALUES[column]), ids=7),
        4,
    ),
    by_spark=st.just((WORLD, random_batches(11, (visits,), VALUES.get, batches=5, ids=13, changes=12))),
)
