"""A table of rows in one test fails with every wrong row, and passes with none."""

from __future__ import annotations

import inspect

import pytest

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
