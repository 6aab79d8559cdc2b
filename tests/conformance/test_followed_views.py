"""Views of every kind follow any history, cut and killed anywhere: live = rebuilt = what an oracle says."""

from __future__ import annotations

from functools import partial

import pytest

from tests.conformance import (
    filtered_views,
    generated_views,
    history_views,
    join_views,
    near_views,
    partition_views,
    pattern_views,
    time_join_views,
    window_views,
)
from tests.conformance.followed_views import (
    EXAMPLES,
    few,
    live_by_spark,
    live_in_a_file,
    live_in_postgresql,
    look_at,
    some,
)

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]
FOLLOWED = {
    "views of generated tables": generated_views.FOLLOWED,
    "joins": join_views.FOLLOWED,
    "tables with a condition": filtered_views.FOLLOWED,
    "partitions": partition_views.FOLLOWED,
    "joins by time": time_join_views.FOLLOWED,
    "windows": window_views.FOLLOWED,
    "near rows": near_views.FOLLOWED,
    "patterns": pattern_views.FOLLOWED,
    "histories": history_views.FOLLOWED,
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_views_are_right_after_any_batch(name, spark, tmp_path):
    followed = FOLLOWED[name]
    look_at(followed.lives, partial(live_in_a_file, spark, tmp_path), some(followed.examples))


# Generated views compare texts and nulls, windows compare times, and near rows have ranges of them. The others are the
# same statements again.
BY_DEFAULT = ("views of generated tables", "windows", "near rows")
ON_POSTGRESQL = [pytest.param(name, marks=[] if name in BY_DEFAULT else pytest.mark.faults) for name in FOLLOWED]


@pytest.mark.parametrize("name", ON_POSTGRESQL)
def test_views_are_right_in_postgresql_too(name, spark, database):
    def in_a_database(world, history):
        live_in_postgresql(spark, database(), world, history)

    followed = FOLLOWED[name]
    look_at(followed.lives if followed.in_postgresql is None else followed.in_postgresql, in_a_database, few(10))


# Generated views have nulls, texts, outer joins and kills. The others are the same code of Spark's runner again.
BY_SPARK = [
    pytest.param(name, marks=[] if name == "views of generated tables" else pytest.mark.faults)
    for name, followed in FOLLOWED.items()
    if followed.by_spark is not None
]


@pytest.mark.parametrize("name", BY_SPARK)
def test_spark_keeps_views_as_it_would_rebuild_them(name, spark, tmp_path):
    look_at(FOLLOWED[name].by_spark, partial(live_by_spark, spark, tmp_path), few(20))
