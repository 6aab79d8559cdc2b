"""Predicates mean what they say, of moments too, and what cannot be compared is refused."""

from __future__ import annotations

import datetime as dt
import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pandas as pd
import pytest

from projections import field, of_type
from projections.declaring.event_fields import FieldKind, check_predicate, field_names
from projections.declaring.matching import matcher
from projections.declaring.predicates import Comparison
from projections.errors import InvalidDefinition, InvalidPredicate
from tests.errors import raises
from tests.integration.payments_of_every_kind import Currency, Method, Payment
from tests.rows import each_row

RECEIVED = "payment.received"
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
EVENTS = list(Payment.event_types.values())


def meaning(predicate, data, name=RECEIVED):
    return matcher(predicate)(name, data)


@each_row(
    ("predicate", "data", "expected"),
    [
        (field("amount") > 900, {"amount": Decimal("900.0001")}, True),
        (field("amount") > 900, {"amount": Decimal(900)}, False),
        (900 <= field("amount"), {"amount": Decimal(900)}, True),
        (field("ratio") == Decimal("0.1"), {"ratio": 0.1}, False),
        (field("ratio") == 0.1, {"ratio": 0.1}, True),
        (field("count") != 3.5, {"count": 3}, True),
        (field("note") < "ü", {"note": "u"}, True),
        (field("note").starts_with("refund"), {"note": "refunded"}, True),
        (field("note").is_in(["a", "b"]), {"note": "b"}, True),
        (field("flag") == True, {"flag": True}, True),  # noqa: E712
        (field("day") < dt.date(2024, 1, 1), {"day": dt.date(2023, 12, 31)}, True),
        (field("at") >= NOON, {"at": NOON}, True),
        (field("customer") == UUID(int=7), {"customer": UUID(int=7)}, True),
        (field("method") == Method.CARD, {"method": "card"}, True),
        (field("currency").is_in([Currency.USD]), {"currency": "USD"}, True),
        (field("address.country") == "DE", {"address": {"country": "DE", "lines": []}}, True),
        (field("amount") > field("count"), {"amount": Decimal("3.5"), "count": 3}, True),
        (field("note").is_null(), {}, True),
        (field("ratio").is_null(), {"ratio": math.nan}, True),
    ],
)
def test_a_predicate_means_what_it_says(predicate, data, expected):
    assert meaning(predicate, data) is expected


@each_row(
    "predicate",
    [field("amount") > 900, field("note") != "x", field("count").is_in([1]), field("address.country") == "DE",
     field("note").starts_with(""), field("amount") > field("count"), ~(field("amount") > 900)],
)  # fmt: skip
@each_row("data", [{}, dict.fromkeys(["amount", "note", "count", "address"])])
def test_a_comparison_with_nothing_is_unknown(predicate, data):
    assert meaning(predicate, data) is None


def test_unknown_spreads_as_in_sql():
    true, false, unknown = of_type(Payment.Received), of_type(Payment.Closed), field("note") == "x"
    assert meaning(unknown & false, {}) is False
    assert meaning(false & unknown, {}) is False
    assert meaning(unknown & true, {}) is None
    assert meaning(unknown | true, {}) is True
    assert meaning(true | unknown, {}) is True
    assert meaning(unknown | false, {}) is None
    assert meaning(~unknown, {}) is None


def test_an_event_type_is_a_condition():
    predicate = of_type(Payment.Refunded, Payment.Closed)
    assert meaning(predicate, {}, "payment.closed") is True
    assert meaning(predicate, {}, RECEIVED) is False


def test_a_predicate_shows_itself_as_it_was_written():
    predicate = (field("amount") > 900) & ~field("address.country").is_in(["DE"]) | (field("method") == Method.CASH)
    assert str(predicate) == "((amount > 900 & ~(address.country in ['DE'])) | method == 'cash')"


@pytest.mark.parametrize(
    "written",
    [
        lambda: (field("amount") > 1) and (field("amount") < 5),
        lambda: 1 < field("amount") < 5,
        lambda: not field("note").is_null(),
        lambda: bool(field("flag")),
    ],
    ids=["and", "chained", "not", "a field alone"],
)
def test_a_predicate_used_as_a_truth_value_says_what_to_write(written):
    with pytest.raises(InvalidPredicate) as caught:
        written()
    assert "&, | and ~" in caught.value.remedy


@each_row(
    ("written", "words"),
    [
        (lambda: field("note") == None, "is_null()"),  # noqa: E711
        (lambda: field("ratio") > math.nan, "finite"),
        (lambda: field("ratio") < math.inf, "finite"),
        (lambda: field("amount") > Decimal("NaN"), "finite"),
        (lambda: field("at") > dt.datetime(2024, 1, 1), "time zone"),
        (lambda: field("note") == b"x", "compare with a text"),
        (lambda: field("note") == "\ud800", "UTF-8"),
        (lambda: field("note").is_in([]), "at least one"),
        (lambda: field("note").is_in("abc"), "in a list"),
        (lambda: field("note").is_in(["a", None]), "is_null()"),
        (lambda: field("note").starts_with(1), "compare with a text"),
        (lambda: field("no te"), "not a field's name"),
        (lambda: of_type(), "at least one"),
        (lambda: field("note").is_null() & True, "parentheses"),
    ],
)
def test_what_cannot_be_compared_is_refused_when_it_is_written(written, words):
    with pytest.raises(InvalidPredicate) as caught:
        written()
    assert words in str(caught.value)


def test_a_field_that_no_event_has_is_refused_with_those_there_are():
    with raises(InvalidDefinition, code="unknown-field", match="no event has a field 'amuont'") as caught:
        check_predicate((field("note") == "x") & ~(field("amuont") > 1), EVENTS)
    assert "address.country, address.lines, address.method, amount" in caught.value.remedy


def test_a_field_that_one_event_has_is_enough():
    check_predicate((field("reason") == "fraud") | (field("address.method") == Method.CASH), EVENTS)


@each_row(
    ("predicate", "words"),
    [
        (field("amount") > "900", "number"),
        (field("count") == True, "number"),  # noqa: E712
        (field("note") == 1, "text"),
        (field("note").is_in(["a", 1]), "text"),
        (field("day") == NOON, "date"),
        (field("at") > dt.date(2024, 1, 1), "moment"),
        (field("customer") == "7", "uuid"),
        (field("customer") < UUID(int=7), "no order"),
        (field("flag") > False, "no order"),
        (field("method") > Method.CARD, "no order"),
        (field("method") == "cheque", "one of 'card', 'cash'"),
        (field("method") == Currency.EUR, "no value of this field"),
        (field("address.method").is_in([Method.CARD, "cheque"]), "cheque"),
        (field("note") == Method.CARD, "plain text"),
        (field("address") == "DE", "is_null()"),
        (field("address.lines") == "DE", "is_null()"),
        (field("note.length") == 1, "no record"),
        (field("amount").starts_with("9"), "number"),
        (field("ratio") > field("amount"), "in common"),
        (field("wide") > field("count"), None),
        (field("note") == field("day"), "in common"),
    ],
)
def test_a_comparison_that_its_field_does_not_allow_is_refused_when_it_is_declared(predicate, words):
    if words is None:
        check_predicate(predicate, EVENTS)
        return
    with pytest.raises(InvalidPredicate) as caught:
        check_predicate(predicate, EVENTS)
    assert words in str(caught.value)


def test_a_record_of_another_type_than_the_predicate_is_told_and_not_guessed():
    with pytest.raises(InvalidPredicate, match="holds '900', which cannot be compared as a number"):
        meaning(field("amount") > 900, {"amount": "900"})


def test_the_fields_of_an_event_are_listed_with_those_of_its_records():
    names = field_names(Payment.event_types[RECEIVED].schema)
    assert names[-4:] == ["address", "address.country", "address.lines", "address.method"]


@each_row(
    ("kind", "value", "floor"),
    [
        (FieldKind("number", "whole"), Fraction(7, 2), 3),
        (FieldKind("number", "whole"), Fraction(-7, 2), -4),
        (FieldKind("number", "whole"), Fraction(10**30), 2**63 - 1),
        (FieldKind("number", "whole"), Fraction(-(10**30)), None),
        (FieldKind("number", "decimal", 5, 2), Fraction("1.239"), Decimal("1.23")),
        (FieldKind("number", "decimal", 5, 2), Fraction(10**6), Decimal("999.99")),
        (FieldKind("number", "decimal", 5, 2), Fraction(-(10**6)), None),
        (FieldKind("number", "float"), Fraction("0.1"), math.nextafter(0.1, 0)),
        (FieldKind("number", "float"), Fraction(10**400), math.nextafter(math.inf, 0)),
        (FieldKind("number", "float"), Fraction(-(10**400)), -math.inf),
    ],
)
def test_the_floor_of_a_number_is_the_greatest_of_its_kind_that_is_not_above(kind, value, floor):
    assert kind.floor(value) == floor


# ---- a moment that no event can hold is refused as a constant of a predicate


EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (datetime(1, 1, 1, tzinfo=EAST), "outside of the years 1 to 9999"),
        (datetime.max.replace(tzinfo=WEST), "outside of the years 1 to 9999"),
        (pd.Timestamp("2026-01-01 00:00:00.000000001", tz="UTC"), "nanoseconds"),
    ],
)
@pytest.mark.parametrize(
    "compare", [lambda f, m: f == m, lambda f, m: f < m, lambda f, m: f.is_in([m])], ids=["==", "<", "is_in"]
)
def test_a_moment_that_no_event_can_hold_is_refused(compare: Any, moment: datetime, words: str) -> None:
    with pytest.raises(InvalidPredicate, match=words):
        compare(field("at"), moment)


@pytest.mark.parametrize("moment", [datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=EAST)])
def test_the_first_and_the_last_moments_are_constants(moment: datetime) -> None:
    compared = field("at") == moment
    assert isinstance(compared, Comparison)
    assert compared.value == moment
