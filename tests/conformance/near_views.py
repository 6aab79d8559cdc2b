"""Views that look at rows near in time, over long partitions of which each batch changes a few rows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import sqlalchemy as sa
from hypothesis import strategies as st
from pyspark.sql import functions as F

from projections import (
    ProjectionGroup,
    Table,
    field,
    join_as_of,
    join_within,
    label,
    match_pattern,
    session,
    sliding,
    view,
    windowed,
)
from tests.conformance import view_oracle
from tests.conformance.followed_views import Batch, Change, Followed, World
from tests.conformance.relational_batches import as_array
from tests.conformance.window_views import in_order, shown
from tests.reference import newest_per_key


def captured(name):
    columns = sa.Column("person", sa.BigInteger), sa.Column("seen", sa.DateTime(timezone=True))
    key, page = sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("page", sa.BigInteger)
    return Table.from_changelog(sa.Table(name, sa.MetaData(), key, *columns, page), topic=f"site.public.{name}")


visits, clicks = captured("visits"), captured("clicks")
NAMED = {"visits": visits, "clicks": clicks}
SECONDS = 20  # of gaps and bounds; times are multiples of five
FIRST = datetime(1969, 12, 31, 23, 40, tzinfo=UTC)
one, two = label("one", field("page") == 1), label("two", field("page") == 2)


def of_clicks(clicks):
    renamed = {"id": "click_id", "seen": "clicked", "page": "p"}
    return clicks.select("person", *(F.col(name).alias(new) for name, new in renamed.items()))


def of_visits(visits):
    return visits.select("person", "id", "seen", "page")


def declared(name, key, joined):
    def function(visits, clicks):
        return joined(of_visits(visits), of_clicks(clicks)).select("person", *key)

    function.__name__ = function.signature = name
    return view(by="person", key=key, tables=NAMED)(function)


def within(how):
    return lambda left, right: join_within(
        left, right, on="person", times=("seen", "clicked"), lower="-5 seconds", upper=f"{SECONDS} seconds", how=how
    )


def as_of(**options):
    return lambda left, right: join_as_of(left, right, on="person", times=("seen", "clicked"), **options).where(
        "click_id IS NOT NULL"
    )


@view(by="person", key=("id", "n"), tables=NAMED)
def slid(visits):
    count = F.count("*").over(sliding("seen", f"{SECONDS} seconds", by="person"))
    return visits.select("person", "id", count.alias("n"))


@view(by="person", key="id", tables=NAMED)
def followed(visits):
    """Each one with the next two within some time, several ones with the same."""
    pattern = one.followed_by(two).within(f"{SECONDS} seconds").skip_to_next_row()
    return match_pattern(visits, pattern, by="person", time="seen", key="id", measures={"last": two.last("id")})


stays = windowed("stays", visits, session(f"{SECONDS} seconds", by="person"), on="seen", columns=[])
PAIR = ("id", "click_id")
VIEWS = (
    stays, slid, followed,
    declared("left_join", PAIR, within("left")),
    declared("full_join", PAIR, within("full")),
    declared("anti_join", ("id",), within("anti")),
    declared("before", PAIR, as_of()),
    declared("later", PAIR, as_of(direction="forward", exact=False)),
    declared("nearest", PAIR, as_of(direction="nearest", exact=False)),
    declared("above", PAIR, as_of(condition="p > page", direction="forward", tolerance=f"{SECONDS} seconds")),
)  # fmt: skip
GROUP = ProjectionGroup("near", list(VIEWS))
BETWEEN = f"c.seen BETWEEN v.seen - INTERVAL 5 SECOND AND v.seen + INTERVAL {SECONDS} SECOND"
JOINED = f"FROM visits v {{}} JOIN clicks c ON v.person = c.person AND {BETWEEN}"


def first_click(condition, order):
    return (
        f"SELECT v.person, v.id, c.id AS click_id FROM visits v JOIN clicks c ON v.person = c.person AND {condition}"
        f" QUALIFY row_number() OVER (PARTITION BY v.id ORDER BY {order}, c.id DESC) = 1"
    )


SQL = {
    "stays": f"""
        WITH marked AS (
            SELECT *, CASE WHEN seen - lag(seen) OVER w <= INTERVAL {SECONDS} SECOND THEN 0 ELSE 1 END AS begins
            FROM stays_rows WHERE seen IS NOT NULL WINDOW w AS (PARTITION BY person ORDER BY seen, id)),
        numbered AS (SELECT *, sum(begins) OVER (PARTITION BY person ORDER BY seen, id) AS n FROM marked)
        SELECT id, person, seen, min(seen) OVER s AS window_start, max(seen) OVER s + INTERVAL {SECONDS} SECOND AS
            window_end FROM numbered WINDOW s AS (PARTITION BY person, n)""",
    "slid": "SELECT person, id, count(*) OVER (PARTITION BY person ORDER BY seen RANGE BETWEEN INTERVAL"
    f" {SECONDS} SECOND PRECEDING AND CURRENT ROW) AS n FROM visits",
    "followed": "SELECT a.person, a.id, b.id AS last FROM visits a JOIN visits b ON a.person IS NOT DISTINCT FROM"
    " b.person AND a.page = 1 AND b.page = 2 AND (b.seen, b.id) > (a.seen, a.id) AND b.seen <= a.seen + INTERVAL"
    f" {SECONDS} SECOND QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.seen, b.id) = 1",
    "left_join": f"SELECT v.person, v.id, c.id AS click_id {JOINED.format('LEFT')}",
    "full_join": f"SELECT coalesce(v.person, c.person) AS person, v.id, c.id AS click_id {JOINED.format('FULL')}",
    "anti_join": f"SELECT v.person, v.id {JOINED.format('ANTI')}",
    "before": first_click("c.seen <= v.seen", "c.seen DESC"),
    "later": first_click("c.seen > v.seen", "c.seen"),
    "nearest": first_click("c.seen <> v.seen", "abs(epoch_us(c.seen) - epoch_us(v.seen)), c.seen"),
    "above": first_click(
        f"c.page > v.page AND c.seen BETWEEN v.seen AND v.seen + INTERVAL {SECONDS} SECOND", "c.seen"
    ),
}  # fmt: skip


def expected(log):
    with view_oracle.opened() as engine:
        for name, table in NAMED.items():
            records = [(offset, key.decode(), value) for offset, (key, value) in enumerate(log.records(table.topic))]
            rows = list(newest_per_key(records).values())
            arrays = {c: as_array([row[c] for row in rows], kind.arrow()) for c, kind in table.columns.items()}
            engine.register(name, pa.table(arrays))
        return {
            name: in_order(engine.sql(query.replace("stays_rows", "visits")).to_arrow_table())
            for name, query in SQL.items()
        }


class LongHistory(list):
    """Batches, known by the seed that they are made from."""

    def __init__(self, seed, batches):
        super().__init__(batches)
        self.seed = seed

    def __repr__(self):
        return f"long_history({self.seed})"


def long_history(seed):
    """Some hundred rows of two persons, then batches of a few that come, go, and get other times and persons."""
    chance = random.Random(seed)

    def change(table, id, around):
        moment = chance.choice([chance.randrange(500), around + chance.randrange(12)])
        at = None if chance.random() < 0.03 else (FIRST + timedelta(seconds=5 * moment)).isoformat()
        row = {"person": chance.choice([None, 1, 1, 1, 2, 2]), "seen": at, "page": chance.randrange(4)}
        return Change(table, {"id": id}, None if chance.random() < 0.2 else row, chance.randrange(2), 1)

    first = [change(table, id, chance.randrange(500)) for table in (0, 1) for id in range(150)]
    batches = [first]
    for _ in range(5):
        around = chance.randrange(500)
        batches.append([change(chance.randrange(2), chance.randrange(170), around) for _ in range(8)])
    killed = chance.choice([None, "staged", "kept", "committing", "committed"])
    return LongHistory(seed, [Batch(few, killed if few is batches[-1] else None) for few in batches])


WORLD = World(GROUP, (visits, clicks), SQL, expected, shown)
FOLLOWED = Followed(
    st.tuples(st.just(WORLD), st.integers(0, 1 << 30).map(long_history)),
    2,
    st.just((WORLD, long_history(5)[:4])),
    st.just((WORLD, long_history(6))),
)
