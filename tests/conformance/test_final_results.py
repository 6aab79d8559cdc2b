"""Final results: each once, when the clock says so, whatever the rows say; what comes later is listed."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from factfold.cli.entry import application
from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, sql_view, view
from projections.declaring.timing.windows import tumbling
from projections.declaring.view_decorator import windowed
from projections.declaring.view_topics import FinalResults
from projections.errors import InvalidDefinition
from projections.lifecycle.between_batches import give_out
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores import dialects, finals
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance.topic_folds import Finals, at, group_of
from tests.errors import refused

pytestmark = pytest.mark.postgres_in_faults

SALES = sa.Table(
    "sales", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("amount", sa.BigInteger),
    sa.Column("at", sa.DateTime(timezone=True)), sa.Column("day", sa.Date),
)  # fmt: skip
sales = Table.from_changelog(SALES, topic="shop.public.sales")
PROMISE = FinalResults("window_end", after="2 minutes", max_ahead="1 hour", topic="final-minutes")
in_minutes = windowed("in_minutes", sales, tumbling("1 minute"), on="at")
QUERY = (
    "SELECT window_start, max(window_end) AS window_end, sum(amount) AS amount FROM in_minutes GROUP BY window_start"
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def group(query=QUERY, version=1):
    minutes = sql_view("minutes", query, tables={"in_minutes": in_minutes}, final=PROMISE)
    return ProjectionGroup("shop", [minutes], version=version)


class Shop:
    """A view with final results, a writer of sales, and the clock of the database."""

    def __init__(self, spark, store, monkeypatch):
        self.store, self.now, self.url = store, NOON, f"sqlite:///{store.place}"
        self.environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        self.changes = ChangeWriter(self.environment.log)
        monkeypatch.setattr(dialects, "now", lambda connection: (self.now - EPOCH) // timedelta(microseconds=1))
        rebuild(self.environment, group())

    def sell(self, id, amount, *, minute):
        moment = NOON + timedelta(minutes=minute)
        self.changes.put(sales, {"id": id, "amount": amount, "at": moment.isoformat(), "day": "2026-03-01"})

    def pass_to(self, minute, runner):
        """Let the clock show so many minutes after noon, and the runner look."""
        self.now = NOON + timedelta(minutes=minute)
        runner.catch_up()

    def given(self, *, late=False):
        with self.store.looking() as connection:
            rows = list(finals.results_of(connection, "shop", "minutes", late=late))
        found = [(json.loads(row["key"])["window_start"][11:16], row["value"]) for row in rows]
        amounts = [(minute, value and int(json.loads(value)["amount"])) for minute, value in found]
        return [(*one, row["reason"]) for one, row in zip(amounts, rows, strict=True)] if late else amounts

    def published(self):
        records = [(json.loads(key), json.loads(value)) for key, value in self.environment.log.records("final-minutes")]
        return [(key["window_start"][11:16], int(value["amount"])) for key, value in records]

    def shown(self):
        with self.store.transaction() as connection:
            return sorted(int(row.amount) for row in connection.execute(sa.text("SELECT * FROM minutes")))

    def standing(self):
        (row,) = [row for row in self.store.generations() if row["status"] == "serving"]
        return row["final_results"]["minutes"]


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def shop(spark, store, monkeypatch):
    return Shop(spark, store, monkeypatch)


def test_each_result_comes_once_by_the_clock_and_what_breaks_the_promise_is_listed(shop):
    with open_runner(shop.environment, group()) as runner:
        shop.sell(1, 5, minute=0)
        shop.sell(2, 7, minute=1)
        shop.pass_to(2.9, runner)
        assert shop.given() == []  # the first minute ends at 12:01, and is final at 12:03
        assert shop.standing()["next_due"] == "2026-03-01T12:03:00+00:00"
        shop.pass_to(3, runner)
        assert shop.given() == [("12:00", 5)]  # no other row of this key, nor of any, had to come
        assert shop.published() == [("12:00", 5)]
        shop.sell(3, 1, minute=1)
        shop.pass_to(9, runner)
        assert shop.given() == [("12:00", 5), ("12:01", 8)]
        shop.sell(1, 50, minute=0)
        shop.sell(4, 2, minute=2)
        shop.sell(5, 3, minute=9)
        shop.pass_to(9, runner)
        shop.changes.delete(sales, {"id": 2})
        shop.changes.delete(sales, {"id": 3})
        shop.pass_to(9, runner)
        assert shop.given() == [("12:00", 5), ("12:01", 8)]
        assert shop.given(late=True) == [
            ("12:00", 50, finals.CHANGED), ("12:02", 2, finals.NEW), ("12:01", None, finals.CHANGED)]  # fmt: skip
        assert shop.shown() == [2, 3, 50]  # the view has corrected itself
        assert shop.standing() == {
            "given_out": 2, "late": 3, "final_upto": "2026-03-01T12:07:00+00:00",
            "next_due": "2026-03-01T12:12:00+00:00",
        }  # fmt: skip
    with open_runner(shop.environment, group()) as again:
        shop.pass_to(12, again)
    assert shop.given() == shop.published() == [("12:00", 5), ("12:01", 8), ("12:09", 3)]


def test_the_command_line_shows_results_late_changes_and_what_is_due(shop):
    with open_runner(shop.environment, group()) as runner:
        shop.sell(1, 5, minute=0)
        shop.sell(2, 6, minute=1)
        shop.pass_to(3, runner)
        shop.sell(1, 7, minute=0)
        shop.pass_to(3, runner)

    def told(*words):
        words = ["projections", *words, "--views-url", shop.url]
        found = CliRunner().invoke(application(), words, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.output

    (given,) = map(json.loads, told("finals", "shop", "minutes", "--json").splitlines())
    assert (given["seq"], given["key"], given["value"]["amount"]) == (
        1,
        {"window_start": "2026-03-01T12:00:00.000000Z"},
        5,
    )
    assert told("finals", "shop", "minutes", "--after", "1") == ""
    assert finals.CHANGED in told("finals", "shop", "minutes", "--late")
    assert "view minutes: 1 final results, 1 late changes, the next one due 2026-03-01T12:04" in told("status")
    unknown = CliRunner().invoke(application(), ["projections", "finals", "shop", "hours", "--views-url", shop.url])
    assert (unknown.exit_code != 0, "name one that has: minutes" in str(unknown.exception.remedy)) == (True, True)


def test_a_row_stamped_in_the_future_makes_no_other_row_late(shop):
    with open_runner(shop.environment, group()) as runner:
        shop.sell(1, 1, minute=60 * 24 * 365)
        for id in range(2, 12):
            shop.sell(id, 1, minute=id)
            shop.pass_to(id + 2, runner)
        shop.pass_to(20, runner)
    assert shop.given() == [(f"12:{id:02}", 1) for id in range(2, 12)]
    assert shop.given(late=True) == []
    _, layout = shop.store.serving(group(), view_columns(shop.environment.spark, group()))
    with shop.store.looking() as connection:
        assert finals.ahead(connection, layout.views["minutes"], PROMISE) == 1


def test_nothing_is_final_before_all_that_is_in_the_log_is_applied(shop):
    shop.sell(1, 5, minute=0)
    shop.sell(2, 7, minute=0)
    shop.now = NOON + timedelta(minutes=30)
    with open_runner(shop.environment, group()) as runner:
        runner.run_once(max_records=1)
        assert (shop.shown(), shop.given()) == ([5], [])
        runner.run_once(max_records=1)
        assert shop.given() == [("12:00", 12)]


def test_a_writer_that_never_rests_holds_up_no_result(shop):
    shop.sell(1, 5, minute=0)
    shop.now = NOON + timedelta(minutes=30)
    stop, more = threading.Event(), iter(range(2, 6))

    def sell_another(report):
        if shop.given() or (id := next(more, None)) is None:
            stop.set()
        else:
            shop.sell(id, 1, minute=30)

    with open_runner(shop.environment, group()) as runner:
        runner.run(stop=stop, on_batch=sell_another)
    assert shop.given() == [("12:00", 5)]


def test_a_rebuild_gives_nothing_out_again_and_lists_what_its_generation_has_otherwise(shop):
    shop.sell(1, 5, minute=0)
    shop.sell(2, 6, minute=1)
    with open_runner(shop.environment, group()) as runner:
        shop.pass_to(10, runner)
    other = group(QUERY.replace("sum(amount)", "sum(CASE WHEN amount > 5 THEN 1 ELSE amount END)"), version=2)
    rebuild(shop.environment, other)
    with open_runner(shop.environment, other) as runner:
        shop.sell(3, 1, minute=12)
        shop.pass_to(20, runner)
    assert shop.given() == shop.published() == [("12:00", 5), ("12:01", 6), ("12:12", 1)]
    assert shop.given(late=True) == [("12:01", 1, finals.REBUILT)]


NO_PROMISES = (
    ({"after": None}, "without a promise"),
    ({"after": "-1 minute"}, "after '-1 minute' is negative"),
    ({"after": "soon"}, "after 'soon' is no length of time"),
    ({"after": "1 month"}, "of months"),
    ({"after": "1 minute", "max_ahead": "-1 day"}, "max_ahead '-1 day' is negative"),
)


def test_what_promises_nothing_is_refused():
    for options, words in NO_PROMISES:
        refused(partial(FinalResults, "window_end", **options), words)


def test_a_time_of_final_results_is_a_timestamp_of_the_view(spark):
    for on, words in (("window", "no column of it"), ("day", "date"), ("amount", "bigint")):

        @view(key="id", tables={"sales": sales}, final=FinalResults(on, after="1 minute"))
        def sold(sales):
            return sales

        with pytest.raises(InvalidDefinition, match=f"is final by '{on}', which is {words}"):
            view_columns(small_batch_session(spark), ProjectionGroup("shop", [sold]))


# ---- a runner looks for final results twice a second


class Looks:
    """The looks of a runner, whose transactions are counted."""

    def __init__(self, store):
        self.shop, self.transactions = Finals(store), 0
        self.run, self.layout = self.shop.serve(group_of(), [0, 5])

    def looking(self):
        return self.shop.store.looking()

    def transaction(self):
        self.transactions += 1
        return self.shop.store.transaction()

    def at(self, minute):
        """Look so many minutes after noon; how many results were given out, in how many transactions."""
        self.transactions = 0
        return give_out(self, self.run, self.layout, at(minute)).get("sold", 0), self.transactions


@pytest.fixture
def looks(store):
    return Looks(store)


@pytest.mark.both_databases
def test_a_look_opens_a_transaction_only_where_a_result_is_due_or_a_minute_has_passed(looks):
    assert looks.at(1) == (0, 1)  # notes when the first one is due
    assert [looks.at(1 + second / 60) for second in range(3)] == [(0, 0)] * 3
    assert looks.at(2) == (1, 1)
    assert [looks.at(2), looks.at(2.9)] == [(0, 0)] * 2
    assert [looks.at(3.1), looks.at(3.1)] == [(0, 1), (0, 0)]  # how far time has come is noted once a minute
    assert [looks.at(7), looks.at(7)] == [(1, 1), (0, 0)]


def test_a_generation_that_serves_no_more_opens_none(looks):
    looks.shop.serve(group_of(2), [0])
    assert looks.at(30) == (0, 0)


def test_a_row_whose_time_passed_since_the_last_note_is_given_out_though_nothing_was_due(looks):
    looks.at(3)
    looks.shop.put(looks.layout, 1.2)
    assert [looks.at(3.3), looks.at(3.3)] == [(1, 1), (0, 0)]


@pytest.mark.parametrize("store", ["SQLite"], indirect=True)
def test_a_row_whose_time_moves_on_is_not_given_out_again(looks):
    assert looks.at(2)[0] == 1
    with looks.shop.store.transaction() as connection:
        connection.execute(sa.delete(looks.layout.views["sold"].view))
    looks.shop.put(looks.layout, 0.5)
    assert looks.at(2.9)[0] == 0
