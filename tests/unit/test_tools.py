"""Tools of the repository: tables of tests, of benchmarks, and what Flink answers."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from decimal import Decimal

import pytest

from benchmarks import append_async
from benchmarks.__main__ import rows, table
from benchmarks.flink_sql import BY_DUCKDB, DIALECT, Changelog, Refused, of_flink
from docs.performance_chart import drawn, margin
from tests.conformance.sql_suites import of_duckdb, texts
from tests.rows import each_row


def wrong(test, **fixtures):
    with pytest.raises(AssertionError) as refused:
        test(**fixtures)
    return str(refused.value)


def divided(number, by):
    assert by / number == 1
    with pytest.raises(KeyError):
        {1: 1}[number]


def test_each_wrong_row_is_named_with_its_reason():
    listed = wrong(each_row("number", [0, 1, 2, 3])(divided), by=2)
    assert listed.startswith("3 of 4 rows are wrong:\n0: line ")
    assert all(reason in listed for reason in ("ZeroDivisionError", "1: line ", "assert (2 / 1) == 1", "3: line "))
    assert "\n2: " not in listed


def test_what_should_raise_and_does_not_is_a_wrong_row():
    assert "Failed: DID NOT RAISE KeyError" in wrong(each_row("number", [1])(divided), by=1)


def test_a_row_has_the_name_that_the_table_gives():
    assert "\nby itself: " in wrong(each_row("number, by", [(1, 2)], ids=["by itself"])(divided))
    assert "\n<1>, <2>: " in wrong(each_row("number, by", [(1, 2)], ids="<{}>".format)(divided))


def test_a_test_of_two_tables_has_every_row_of_both():
    listed = wrong(each_row("by", [1, 2])(each_row("number", [1, 2])(divided)))
    assert listed.startswith("2 of 2 rows are wrong:\n1: ")
    assert [line.partition(": ")[0] for line in listed.splitlines()[1:]] == ["1", "    1", "    2", "2", "    1"]


def test_fixtures_are_the_other_parameters():
    assert list(inspect.signature(each_row("number", [2])(divided)).parameters) == ["by"]
    each_row("number", [2])(divided)(by=2)


def test_a_coroutine_function_runs_for_each_row():
    async def refuse(number):
        assert number > 1

    assert "1 of 2 rows are wrong:\n1: " in wrong(each_row("number", [1, 2])(refuse))


def test_a_table_without_rows_is_refused():
    with pytest.raises(AssertionError, match="proves nothing"):
        each_row("number", [])


# ---- the programs and the table of `python -m benchmarks`


CLAIM = {
    "id": "rebuild.scan",
    "ours": 73464.2,
    "other": 178660.0,
    "other_name": "raw scan",
    "ratio": 0.4112,
    "unit": "records/s",
    "n": 1_000_000,
    "runs": 3,
    "target": 0.3,
    "met": True,
}


def test_a_claim_becomes_one_line_of_the_table():
    head, line = table(rows([{"machine": {}, "claims": [CLAIM]}])).splitlines()
    assert head.split() == ["claim", "ours", "other", "against", "ratio", "target", "met"]
    cells = re.split(r"  +", line)
    assert cells == ["rebuild.scan", "73,464 records/s", "178,660 records/s", "raw scan", "0.411", "0.3", "yes"]


def test_a_claim_that_is_not_met_is_shown_as_such():
    assert rows([{"claims": [CLAIM | {"met": False}]}])[0][-1] == "NO"


def test_a_claim_on_appends_of_tasks_counts_appends_not_tasks():
    claim = append_async._claim({"tasks.16": 1_000.0, "threads.16": 1_100.0}, 16, runs=3, seconds=4.0)
    assert (claim.id, claim.n) == ("append.tasks.16", 4_000)


def test_a_chart_has_a_bar_for_each_claim_as_far_as_it_is_from_its_target():
    rate = {"id": "rebuild.scan", "ratio": 0.15, "target": 0.3, "unit": "records/s", "met": False}
    time = {"id": "latency.view", "ratio": 150.0, "target": 300.0, "unit": "ms", "met": True}
    assert (margin(rate), margin(time)) == (-1.0, 1.0)
    bars = re.findall(r'<rect x="(\d+)" y="\d+" width="(\d+)" height="\d+" fill="(.*?)"/>', drawn([rate, time]))
    assert bars == [("415", "55", "#cf222e"), ("470", "55", "#2da44e")]


# ---- the texts that Flink SQL gets in the comparison, and the rows that its changelog leaves


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


# ---- the checker of a relay
