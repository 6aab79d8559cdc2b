"""The texts that Flink SQL gets in the comparison, and the rows that its changelog leaves."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from benchmarks.flink_sql import BY_DUCKDB, DIALECT, Changelog, Refused, of_flink
from tests.conformance.sql_suites import of_duckdb, texts

QUERIES = texts("tpch") | texts("nexmark")
COLUMNS = {"columns": {"n": "BIGINT NOT NULL", "m": "DECIMAL(38, 2)", "at": "TIMESTAMP(6)"}}


def heard(*rows):
    changelog = Changelog()
    changelog.hear(COLUMNS)
    for kind, *row in rows:
        changelog.hear({"at": 1500, "kind": kind, "row": row})
    return changelog


@pytest.mark.parametrize("name", DIALECT)
def test_each_change_of_a_text_is_found_in_it(name):
    text = of_duckdb(name, QUERIES[name]) if name in BY_DUCKDB else QUERIES[name]
    shared = ("window.start", "window.end")  # not every window is read from begin to end
    assert [ours for ours in DIALECT[name] if ours not in text and ours not in shared] == []


def test_an_order_is_left_out_unless_it_has_a_limit():
    assert "order by" not in of_flink("tpch_q04", QUERIES["tpch_q04"])
    assert of_flink("tpch_q03", QUERIES["tpch_q03"]).endswith("order by revenue desc, o_orderdate limit 10")


def test_a_changelog_leaves_the_rows_that_were_not_taken_back():
    first, second = ("1", "0.50", "2026-03-01T23:59"), ("1", None, "2026-03-01T23:59:00.000001")
    changelog = heard(("+I", *first), ("+I", *first), ("-U", *first), ("+U", *second))
    day = dt.datetime(2026, 3, 1, 23, 59)
    rows = [(1, Decimal("0.5"), day), (1, None, day.replace(microsecond=1))]
    assert changelog.difference((["n", "m", "at"], rows)) is None
    assert changelog.difference((["n", "m", "at"], rows[:1])) == "2 rows instead of 1"


def test_a_row_that_is_taken_back_before_it_comes_is_a_difference():
    assert heard(("-D", "1", None, None)).difference((["n", "m", "at"], [])) == "a row is taken back that never came"


def test_a_query_that_has_not_started_has_no_answer():
    assert Changelog().difference((["n"], [])) == "not started"


@pytest.mark.parametrize("how", ["refused", "failed"])
def test_a_refusal_is_raised_with_its_reason(how):
    with pytest.raises(Refused, match=f"{how}: no such function"):
        Changelog().hear({how: "no such function"})
