"""TPC-H, Nexmark and random queries: each is refused with a remedy, or live and equal to DuckDB."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pytest

from projections.spark.session import small_batch_session
from tests.conformance.sql_suites import LiveQueries, refusals, texts
from tests.conformance.suite_rows import TPCH, nexmark
from tests.conformance.toy_tables import Play, RandomQueries, Toy, little_tables

BATCHES = 3
TOYS: Mapping[str, Callable[[], Mapping[str, Toy]]] = {"tpch": lambda: TPCH, "nexmark": nexmark}
SEEDS = {"tpch": 7, "nexmark": 1}  # by which each query has rows that change
# A query that becomes accepted leaves its set.
REFUSED = {"tpch": "", "nexmark": ""}
# One of each shape: the first build and the first batch make a plan for each stage.
SHAPES = {"tpch": "q02 q04 q11 q13 q15 q21", "nexmark": "q04 q07 q09 q15 q18"}


def play_of(suite):
    return Play(TOYS[suite](), SEEDS[suite])


@pytest.fixture(scope="module")
def few(spark):
    """A session for few rows."""
    return small_batch_session(spark)


@pytest.mark.parametrize("suite", TOYS)
def test_a_query_that_is_refused_comes_with_a_remedy(few, suite):
    refused = refusals(few, texts(suite), play_of(suite).toys)
    assert set(refused) == {f"{suite}_{query}" for query in REFUSED[suite].split()}
    assert not [name for name, error in refused.items() if not error.remedy]


@pytest.mark.parametrize("size", [pytest.param("all", marks=pytest.mark.faults), "some"])
@pytest.mark.parametrize("suite", TOYS)
@pytest.mark.postgres_in_faults
@pytest.mark.timeout(1800)
def test_each_query_is_live_as_duckdb_has_it(few, store, suite, size):
    named = {f"{suite}_{query}" for query in (SHAPES if size == "some" else REFUSED)[suite].split()}
    accepted = {name: text for name, text in texts(suite).items() if (name in named) == (size == "some")}
    play = play_of(suite)
    with LiveQueries(few, suite, accepted, play, store) as live:
        live.require_equal(BATCHES)


# ---- random queries over three tables


EACH, DRAWN_BATCHES = 5, 2
AT_ONCE = 50  # queries in a group
MOST = int(os.environ.get("FACTFOLD_QUERIES", "2000"))
DRAWN_SEEDS = [range(first // EACH, min(first + AT_ONCE, MOST) // EACH) for first in range(0, MOST, AT_ONCE)]
# What the generator does not draw.
FORMS = (
    "SELECT a, sum(b) AS s FROM (SELECT m AS a, m AS b FROM t UNION ALL SELECT m AS a, id AS b FROM u) GROUP BY a",
    "SELECT id FROM t WHERE m > (SELECT avg(m) FROM u) OR a = (SELECT min(a) FROM v)",
    "SELECT x.id, y.id AS other FROM t x JOIN t y ON x.a = y.b",
    "SELECT count(DISTINCT a) AS x, count(DISTINCT b) AS y, sum(m) AS z FROM t",
    "SELECT id, a FROM t ORDER BY m DESC, id LIMIT 3",
    "SELECT id FROM t WHERE a NOT IN (SELECT b FROM u)",
    "SELECT t.id, (SELECT max(u.m) FROM u WHERE u.a = t.a) AS best FROM t",
    "SELECT t.id, u.id AS other FROM t JOIN u ON t.m > u.m",
    "SELECT t.id, u.id AS other FROM t FULL JOIN u ON t.a = u.b",
    "SELECT coalesce(t.id, u.id, v.id) AS k, t.a, v.s FROM t FULL JOIN u ON t.id = u.id FULL JOIN v"
    " ON coalesce(t.id, u.id) = v.id",
    "SELECT coalesce(t.id, u.id) AS k, t.s, v.m FROM t FULL JOIN u ON t.id = u.id LEFT JOIN v ON t.a = v.id",
    "SELECT t.id, u.id AS other, v.id AS third FROM t FULL JOIN u ON t.a = u.id FULL JOIN v ON t.b = v.id",
    "SELECT t.id FROM t CROSS JOIN (SELECT avg(m) AS m FROM u) x WHERE t.m > x.m",
    "SELECT x.a, x.n, y.n AS other FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x JOIN (SELECT b,"
    " count(*) AS n FROM u GROUP BY b) y ON x.a = y.b AND x.n = y.n",
    "SELECT a, b, sum(m) AS s FROM t GROUP BY ROLLUP (a, b) HAVING a IS NOT NULL",
    "SELECT id, EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS e FROM t",
    "SELECT a, count(*) AS n FROM t WHERE b = 1 OR NOT EXISTS (SELECT 1 FROM v WHERE v.id = t.b + 1) GROUP BY a",
    "SELECT id, m FROM t ORDER BY m, id LIMIT 3 OFFSET 2",
    "SELECT t.id, v.n FROM t LEFT JOIN (VALUES (1, 0.5), (1, 0.7)) AS v(k, n) ON t.a = v.k",
    "SELECT count(*) AS n, sum(m) AS s, min(id) AS low FROM t WHERE m > 1000",
    "SELECT t.a, count(u.id) AS n FROM t LEFT JOIN u ON t.b = u.b GROUP BY t.a HAVING count(*) > 1",
    "SELECT t.id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.m = 99) AND t.a = 2",
)
# Other ways to say the same, and each in the folder ``forms``, some with texts of their own for DuckDB.
MORE_FORMS = (
    "SELECT t.id, u.id AS other, v.id AS third FROM t FULL JOIN u ON t.b = u.b FULL JOIN v ON coalesce(t.b, u.b) = v.b",
    "SELECT t.id, u.id AS other, v.id AS third FROM t RIGHT JOIN u ON t.a = u.id FULL JOIN v ON v.a = u.id",
    "SELECT coalesce(x.b, y.b) AS k, x.n, y.s FROM (SELECT b, count(*) AS n FROM t GROUP BY b) x FULL JOIN"
    " (SELECT b, sum(a) AS s FROM u GROUP BY b) y ON x.b = y.b",
    "SELECT w.id, w.other, w.n, v.id AS third FROM (SELECT t.id, u.id AS other, t.b, row_number() OVER (PARTITION BY"
    " t.b ORDER BY t.a, t.id, u.id) AS n FROM t JOIN u ON t.b = u.b) w FULL JOIN v ON w.b = v.b",
    "SELECT t.id, (SELECT u.s FROM u WHERE u.id = t.a) AS s FROM t",
    "SELECT t.id, u.s, u.id AS other FROM t LEFT JOIN u ON u.id IN (t.a, t.b)",
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.a OR u.id = t.b AND u.a > 3)",
    "SELECT a FROM t UNION SELECT b FROM u",
    "SELECT id, (SELECT max(m) FROM u HAVING count(*) > 8) AS top, (SELECT min(m) FROM v) AS low FROM t",
    "SELECT a FROM t INTERSECT SELECT b FROM u",
    "SELECT a FROM t EXCEPT SELECT b FROM u",
    "SELECT a, count(*) AS n FROM (SELECT a FROM t GROUP BY a, b UNION ALL SELECT b FROM u) GROUP BY a",
    "SELECT t.id, x.n FROM t JOIN (SELECT a AS k, 1 AS n FROM u UNION ALL SELECT b, 2 FROM v) x ON t.a = x.k",
    "SELECT a, max(m) AS m FROM t GROUP BY a ORDER BY 2 DESC, 1 LIMIT 2",
    "SELECT id FROM t WHERE a NOT IN (SELECT b FROM u WHERE b IS NOT NULL)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.m > t.m)",
    "SELECT id, rank() OVER (PARTITION BY a ORDER BY m) AS r FROM t",
    "SELECT id, row_number() OVER (ORDER BY id) AS r FROM t",
    "SELECT t.id, u.id AS other FROM t JOIN u ON t.a + 1 = u.b * 2",
    "SELECT a, count(*) AS n FROM t GROUP BY CUBE (a, b)",
    "SELECT t.id, v.n, w.k FROM t JOIN (VALUES (1, 0.5), (1, 0.7)) AS v(k, n) ON t.a = v.k JOIN u ON true"
    " JOIN (VALUES (3), (4)) w(k) ON w.k > t.b WHERE u.id = 1",
    "SELECT (SELECT count(*) FROM t) AS x, (SELECT sum(m) FROM u) AS y",
    "SELECT t.id FROM t, (SELECT max(m) AS m FROM u) x, (SELECT min(m) AS m FROM u) y WHERE t.m BETWEEN y.m AND x.m",
    "SELECT t.id, u.id AS other FROM t RIGHT JOIN u ON t.m > u.m",
)
# With these forms, some sixty queries. So many of that folder as a suite can pay.
IN_A_SUITE = range(7)
IN_SUITES = "sessions last_sessions last_sessions_in_stages names_twice records_joined counted_sets first_of_each"
OF_FOLDER = tuple(f"forms_{name}" for name in IN_SUITES.split())
# Forms are asked once, with the first queries that are drawn.
WITH_FORMS = {IN_A_SUITE: (FORMS, OF_FOLDER), DRAWN_SEEDS[0]: ((*FORMS, *MORE_FORMS), tuple(texts("forms")))}


@pytest.mark.timeout(1800)  # a plan for each stage in the first build and the first batch
@pytest.mark.parametrize(
    "seeds", [IN_A_SUITE, *(pytest.param(seeds, marks=pytest.mark.faults) for seeds in DRAWN_SEEDS)]
)
def test_a_random_query_is_refused_with_a_remedy_or_live_as_duckdb_has_it(spark, store, seeds):
    few, play = small_batch_session(spark), Play(little_tables(), seed=1)
    forms, folder = WITH_FORMS.get(seeds, ((), ()))
    queries = {f"form_{number}": text for number, text in enumerate(forms)}
    queries |= {name: text for name, text in texts("forms").items() if name in folder}
    for seed in seeds:
        drawn = RandomQueries(seed)
        queries |= {f"seed_{seed}_{number}": drawn.query() for number in range(EACH)}
    refused = refusals(few, queries, play.toys)
    assert not [name for name, error in refused.items() if not error.remedy]
    accepted = {name: text for name, text in queries.items() if name not in refused}
    assert len(accepted) > len(forms) + len(folder) + len(seeds), "too few queries to prove anything"
    assert not [name for name in refused if name.startswith("form")]
    with LiveQueries(few, "random", accepted, play, store) as live:
        live.require_equal(DRAWN_BATCHES)
