"""Rows as of a time: those of a history that were valid then, in Python and on the command line."""

from __future__ import annotations

import json
import random
from datetime import datetime
from decimal import Decimal

import pytest
from typer.testing import CliRunner

from factfold.cli.entry import application
from projections import open_runner, rows_as_of
from projections.errors import InvalidDefinition
from projections.stores import dialects
from tests.conformance.history_ledger import (
    ALL,
    PRICES,
    Ledger,
    change_of,
    expected,
    minutes,
    price_history,
    random_change,
    recent_prices,
    write,
)
from tests.conformance.history_oracle import MINUTE, at
from tests.integration.payments import Payment


@pytest.fixture
def ledger(spark, store):
    return Ledger(spark, store)


@pytest.mark.postgres_in_faults
def test_the_rows_as_of_any_time_are_those_that_were_valid_then(ledger):
    chance = random.Random(2)
    for lsn in range(1_000, 1_300, 10):
        write(ledger.log, random_change(chance, lsn))
    ledger.record("p", 0, Payment.Received(customer_id=1, amount=Decimal("1.5"), paid_at=None), 1)
    ledger.record("p", 1, Payment.Refused(reason="no card"), 3)
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()
    rows = expected(ledger.log)["price_history"]
    for minute in range(-1, 9):
        found = rows_as_of(ledger.store, ALL, price_history, minutes(minute))
        assert [{c: row[c] for c in PRICES.columns.keys()} for row in found.to_pylist()] == at(rows, minute * MINUTE)
    (paid,) = rows_as_of(ledger.store, ALL, "payment_history", minutes(2)).to_pylist()
    assert paid == {
        "payment_id": "p", "amount": Decimal("1.5000"), "customer": 1, "reason": "", "valid_from": minutes(1),
        "valid_to": minutes(3), "is_current": False,
    }  # fmt: skip
    assert rows_as_of(ledger.store, ALL, "payment_history", minutes(0)).num_rows == 0


@pytest.mark.parametrize(
    ("view", "moment", "words"),
    [
        ("recent_prices", minutes(1), "keeps versions for 0:02:00, and 1970-01-01T00:01:00+00:00 is longer before now"),
        ("price_history", datetime(2026, 1, 1), "has no time zone"),
        ("prices", minutes(1), "serves no history 'prices'"),
    ],
)
def test_a_time_for_which_no_history_answers_is_refused(ledger, view, moment, words):
    with pytest.raises(InvalidDefinition) as caught:
        rows_as_of(ledger.store, ALL, view, moment)
    assert words in caught.value.message
    assert caught.value.remedy


def test_what_is_kept_is_there_for_all_times_within_keep_before_now(ledger, monkeypatch):
    write(ledger.log, change_of(1, at=0))
    write(ledger.log, change_of(2, at=1))
    write(ledger.log, change_of(3, at=4))
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()
    monkeypatch.setattr(dialects, "now", lambda connection: 5 * MINUTE)
    found = [rows_as_of(ledger.store, ALL, recent_prices, minutes(minute))["price"].to_pylist() for minute in (3, 4, 5)]
    assert found == [[2], [3], [3]]
    with pytest.raises(InvalidDefinition, match="is longer before now"):
        rows_as_of(ledger.store, ALL, recent_prices, minutes(2))
    monkeypatch.setattr(dialects, "now", lambda connection: 3 * MINUTE)  # the change of minute 4 is of a clock ahead
    with pytest.raises(InvalidDefinition, match="before a change whose time is still to come"):
        rows_as_of(ledger.store, ALL, recent_prices, minutes(1))


def test_the_command_line_shows_the_rows_as_of_a_time(ledger):
    write(ledger.log, change_of(7, at=2))
    with open_runner(ledger.environment, ALL) as runner:
        runner.catch_up()

    def told(*words):
        given = [
            "projections",
            "as-of",
            "tests.conformance.history_ledger:ALL",
            *words,
            "--views-url",
            f"sqlite:///{ledger.store.path}",
        ]
        return CliRunner().invoke(application(), given)

    (row,) = json.loads(told("price_history", "--at", "1970-01-01T00:02:00Z", "--json").output)
    assert row == {
        "shop": 1, "sku": "a", "price": 7, "valid_from": "1970-01-01T00:02:00+00:00", "valid_to": None,
        "is_current": True,
    }  # fmt: skip
    assert told("price_history", "--at", "1970-01-01T00:01:59Z").output == ""
    assert "price=7" in told("price_history", "--at", "1970-01-01T00:02:01Z").output
    assert "'soon' is no time" in str(told("price_history", "--at", "soon").exception)
