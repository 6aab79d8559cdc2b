"""Random queries over three tables: each is refused by InvalidDefinition, or live and equal to DuckDB's answer."""

from __future__ import annotations

from projections.spark.session import small_batch_session
from tests.conformance.random_queries import RandomQueries, little_tables
from tests.conformance.sql_suites import LiveQueries, refusals
from tests.conformance.toy_tables import Play

SEEDS, EACH, BATCHES = range(6), 5, 2


def test_a_random_query_is_refused_with_a_remedy_or_live_as_duckdb_has_it(spark, tmp_path):
    few, play, queries = small_batch_session(spark), Play(little_tables(), seed=1), {}
    for seed in SEEDS:
        drawn = RandomQueries(seed)
        queries |= {f"seed_{seed}_{number}": drawn.query() for number in range(EACH)}
    refused = refusals(few, queries, play.toys)
    assert not [name for name, error in refused.items() if not error.remedy]
    accepted = {name: text for name, text in queries.items() if name not in refused}
    assert len(accepted) > len(SEEDS) // 2, "too few queries to prove anything"
    with LiveQueries(few, "random", accepted, play, tmp_path) as live:
        live.require_equal(BATCHES)
