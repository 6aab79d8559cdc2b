"""TPC-H and Nexmark as published: each query is refused with a remedy, or live and equal to DuckDB's answer.

Little data has rows for them with other constants: the days of TPC-H's q1, the region of q5, the fractions of q11 and
q17, and the quantity of q18. Nexmark's texts are Flink's. They have Spark's windows, and names for all columns. Its q6
ranks, q12 goes by the time of the bid, and q13, q14, q21 and q22 have plain SQL for files and own functions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal

import pytest

from projections.declaring.columns import ColumnType
from projections.spark.session import small_batch_session
from tests.conformance.nexmark_rows import nexmark
from tests.conformance.sql_suites import LiveQueries, answers, first_difference, of_duckdb, refusals, texts
from tests.conformance.toy_tables import Play, Toy
from tests.conformance.tpch_rows import TPCH
from tests.rows import each_row

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
def test_the_answer_to_each_query_has_rows_and_changes(suite):
    play, queries = play_of(suite), {name: of_duckdb(name, text) for name, text in texts(suite).items()}
    assert len(queries) == {"tpch": 22, "nexmark": 23}[suite]
    play.begin()
    seen = [answers(play, queries)]
    for _ in range(BATCHES):
        play.batch()
        seen.append(answers(play, queries))
    for name in queries:
        bags = [sorted(map(repr, found[name][1])) for found in seen]
        assert any(any(value is not None for value in row) for found in seen for row in found[name][1]), name
        assert len({tuple(bag) for bag in bags}) > 1, name


def test_every_table_has_inserts_updates_and_deletions():
    for suite in TOYS:
        play, happened = play_of(suite), set()
        play.begin()
        for _ in range(BATCHES):
            before = {toy.table.topic: set(play.rows[name]) for name, toy in play.toys.items()}
            for change in play.batch():
                key = tuple(change.row[c] for c in change.table.key)
                happened.add((change.table.topic, change.gone, key in before[change.table.topic]))
        for toy in play.toys.values():
            assert {(toy.table.topic, *how) for how in ((False, False), (False, True), (True, True))} <= happened


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


def test_a_planted_fault_is_found_in_views_that_miss_a_batch(few, store):
    play, queries = play_of("tpch"), texts("tpch")
    with LiveQueries(few, "missed", {"tpch_q01": queries["tpch_q01"]}, play, store) as live:
        play.batch()
        assert list(live.wrong()) == ["tpch_q01"]


TEXT, WHOLE, FLOAT = (ColumnType(kind) for kind in ("string", "long", "double"))
ROUNDED = ColumnType("decimal", 12, 2)
DAY = dt.datetime(2026, 3, 1)
BAGS = {
    "a row twice": (WHOLE, [1, 1, 2], [1, 2, 2], True),
    "a row less": (WHOLE, [1], [1, 1], True),
    "a row more": (WHOLE, [1, None], [None], True),
    "another order": (TEXT, ["b", None, "a"], ["a", "b", None], False),
    "null": (TEXT, [None], [""], True),
    "a float": (FLOAT, [1.0], [1.0 + 1e-12], False),
    "another float": (FLOAT, [1.0], [1.0 + 1e-8], True),
    "a float and null": (FLOAT, [None], [0.0], True),
    "an exact decimal": (ROUNDED, [Decimal("1.50")], [Decimal("1.5")], False),
    "another exact decimal": (ROUNDED, [Decimal("1.50")], [Decimal("1.51")], True),
    "a rounded decimal": (ROUNDED, [Decimal("0.33")], [1 / 3], False),
    "a wrongly rounded decimal": (ROUNDED, [Decimal("0.34")], [1 / 3], True),
    "a time of UTC": (ColumnType("timestamp"), [DAY.replace(tzinfo=dt.UTC)], [DAY], False),
}


@each_row("kind, found, right, differ", BAGS.values(), ids=BAGS)
def test_two_bags_of_rows_differ(kind, found, right, differ):
    bags = ([{"x": value} for value in bag] for bag in (found, right))
    assert (first_difference({"x": kind}, *bags) is not None) == differ
