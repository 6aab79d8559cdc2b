"""Predicates in Spark against predicates in Python: random ones, over random events of today's and older schemas.

A Spark job takes some 0.3 s here: few examples, each of many predicates and many rows.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder, AvroEncoder
from eventstore.schema_registry import RegisteredSchema
from projections import field, of_type
from projections.declaring.event_fields import check_predicate
from projections.declaring.matching import matcher
from projections.errors import InvalidPredicate
from projections.spark.events.decode import Decoder, column_of
from projections.spark.failures import refuse
from projections.spark.views.conditions import condition
from tests.integration.payments_of_every_kind import Address, Currency, Method, Payment

FEW = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
RAW = "topic string, partition int, offset bigint, key string, value binary"
# What an older release wrote: fewer fields, other digits, narrower numbers.
OLD = RegisteredSchema.of({
    "type": "record", "namespace": "payment", "name": "received", "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "count", "type": ["null", "int"]}, {"name": "share", "type": "float"},
    ],
})  # fmt: skip
DECLARED = {kind.schema_id: kind.registered for kind in Payment.event_types.values()}
REGISTRY = {**DECLARED, OLD.id: OLD}

# Few values, so that rows and constants meet; the edges of every type among them.
whole = st.sampled_from([-(2**63), -(2**53) - 1, -1, 0, 1, 3, 2**53, 2**53 + 1, 2**63 - 1])
decimals = st.sampled_from(["-99999999999999.9999", "-0.0001", "0", "0.1", "1", "3.5", "900", "99999999999999.9999"])
amounts = decimals.map(Decimal)
wides = st.sampled_from(["-9999999999999999999999999999.9999999999", "0.1000000000", "1e27", "3"]).map(Decimal)
floats = st.sampled_from(
    [-math.inf, -1e308, -0.0, 0.0, 5e-324, 0.1, 1.0, 3.5, float(2**53), 9007199254740993.0, 1e308, math.inf, math.nan]
)
narrow = st.sampled_from([-0.0, 0.5, 0.10000000149011612, 3.5, math.nan, math.inf])  # each a 32-bit number
texts = st.sampled_from(["", "a", "ab", "b", "ä", "z", "\U0001f600", "\uffff", "a\x00b", "A"])
stored = texts.filter(lambda text: "\0" not in text)  # an event with NUL is refused; a constant may have it
days = st.sampled_from([dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1969, 12, 31), dt.date(2024, 2, 29)])
moments = st.sampled_from([
    dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    dt.datetime(2024, 3, 30, 23, 30, 0, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
])  # fmt: skip
ids = st.sampled_from([UUID(int=0), UUID(int=10), UUID("ffffffff-ffff-4fff-bfff-ffffffffffff")])
addresses = st.builds(
    Address, country=stored, lines=st.just(["x"]), method=st.none() | st.sampled_from(Method)
)  # fmt: skip

events = st.one_of(
    st.builds(
        Payment.Received, amount=amounts, wide=st.none() | wides, count=st.none() | whole, ratio=st.none() | floats,
        share=st.none() | floats, note=st.none() | stored, flag=st.none() | st.booleans(), day=st.none() | days,
        at=st.none() | moments, customer=st.none() | ids, method=st.none() | st.sampled_from(Method),
        currency=st.none() | st.sampled_from(Currency), address=st.none() | addresses,
    ),
    st.builds(Payment.Refunded, amount=st.none() | amounts, reason=stored),
    st.just(Payment.Closed()),
).map(lambda event: (event_type_of(event).name, event_type_of(event).encode(event)))  # fmt: skip
old_events = st.fixed_dictionaries(
    {"amount": st.sampled_from(["-9999.99", "0", "3.5", "900"]).map(Decimal),
     "count": st.none() | st.sampled_from([-(2**31), 0, 3, 2**31 - 1]), "share": narrow}
).map(lambda values: (OLD.name, AvroEncoder(OLD).encode(values)))  # fmt: skip

finite = floats.filter(math.isfinite)
numbers = st.one_of(
    whole, st.sampled_from([2**64, -(2**64), 10**40]), amounts, wides, finite, st.just(Decimal("1e-400")),
    finite.map(lambda value: Decimal(value) + Decimal("1e-30")),
)  # fmt: skip
ORDERED, EQUAL = ("==", "!=", "<", "<=", ">", ">="), ("==", "!=")
CONSTANTS = {
    **dict.fromkeys(["amount", "wide", "count", "ratio", "share"], (numbers, ORDERED)),
    "note": (texts, ORDERED), "reason": (texts, ORDERED), "address.country": (texts, ORDERED), "day": (days, ORDERED),
    "at": (moments, ORDERED), "flag": (st.booleans(), EQUAL), "customer": (ids, EQUAL),
    "method": (st.sampled_from([*Method, "card"]), EQUAL), "currency": (st.sampled_from(Currency), EQUAL),
    "address.method": (st.sampled_from(Method), EQUAL),
}  # fmt: skip
COMPARABLE = [("amount", "wide"), ("amount", "count"), ("wide", "count"), ("ratio", "share"), ("note", "reason"),
              ("note", "address.country"), ("amount", "amount"), ("share", "share")]  # fmt: skip


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from(sorted(CONSTANTS)))
    values, symbols = CONSTANTS[name]
    if draw(st.booleans()):
        return getattr(field(name), _method(draw(st.sampled_from(symbols))))(draw(values))
    return field(name).is_in(draw(st.lists(values, min_size=1, max_size=14)))


def _method(symbol):
    return {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[symbol]


@st.composite
def field_comparisons(draw):
    left, right = draw(st.sampled_from(COMPARABLE))
    return getattr(field(left), _method(draw(st.sampled_from(ORDERED))))(field(right))


leaf = st.one_of(
    comparisons(), comparisons(), field_comparisons(),
    st.sampled_from([*CONSTANTS, "address", "address.lines"]).map(lambda name: field(name).is_null()),
    st.builds(lambda name, text: field(name).starts_with(text), st.sampled_from(["note", "address.country"]), texts),
    st.lists(st.sampled_from([Payment.Received, Payment.Refunded, Payment.Closed]), min_size=1, max_size=2).map(
        lambda kinds: of_type(*kinds)
    ),
)  # fmt: skip
predicates = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=4,
)


def in_spark(small, tried, records):
    """For each record, what every predicate says."""
    from pyspark.sql import functions as F

    def truths(schema):
        return F.array(*(condition(predicate, schema, F.col(column_of(schema))) for predicate in tried))

    decoder = Decoder.of(Payment.event_types.values(), REGISTRY, as_written=True)
    rows = [("t", 0, offset, "k@0", bytearray(value)) for offset, (_, value) in enumerate(records)]
    raw = small.createDataFrame(rows, RAW).coalesce(1)
    judged = decoder.parsing()(raw).select("offset", decoder.judged(good=truths, fault=refuse).alias("found"))
    return [row.found for row in sorted(judged.collect(), key=lambda row: row.offset)]


def in_python(tried, records):
    decoder = AvroDecoder(REGISTRY.__getitem__)
    return [[matcher(predicate)(name, decoder.decode(value)[1]) for predicate in tried] for name, value in records]


@FEW
@given(
    tried=st.lists(predicates, min_size=25, max_size=40),
    records=st.lists(st.one_of(events, events, old_events), min_size=40, max_size=80),
)
def test_a_predicate_says_the_same_of_a_record_in_spark_and_in_python(small, tried, records):
    for predicate in tried:
        check_predicate(predicate, list(Payment.event_types.values()))
    expected = in_python(tried, records)
    for record, ours, oracle in zip(records, in_spark(small, tried, records), expected, strict=True):
        wrong = [(str(p), s, o) for p, s, o in zip(tried, ours, oracle, strict=True) if s != o]
        assert wrong == [], record


def test_a_tenth_is_not_the_double_nearest_to_it(small):
    values = {"amount": Decimal(1), "count": None, "share": 0.10000000149011612}
    records = [(OLD.name, AvroEncoder(OLD).encode(values))]
    tried = [field("share") == Decimal("0.10000000149011612")]
    assert in_spark(small, tried, records) == in_python(tried, records) == [[False]]


def test_an_older_schema_whose_type_a_predicate_cannot_take_is_refused_with_its_id(small):
    older = RegisteredSchema.of({
        "type": "record", "namespace": "payment", "name": "received", "fields": [{"name": "amount", "type": "string"}]
    })  # fmt: skip
    from pyspark.sql import functions as F

    with pytest.raises(InvalidPredicate, match="kind text cannot be compared with 900") as caught:
        condition(field("amount") > 900, older, F.col("x"))
    assert f"schema {older.id}" in str(caught.value)


def test_a_foreign_spelling_of_a_uuid_is_the_same_uuid(small):
    upper = str(UUID(int=10)).upper().encode()
    whole_event = Payment.Received(
        amount=Decimal(1), wide=None, count=None, ratio=None, share=None, note=None, flag=None, day=None, at=None,
        customer=UUID(int=10), method=None, currency=None, address=None,
    )  # fmt: skip
    name, value = event_type_of(whole_event).name, event_type_of(whole_event).encode(whole_event)
    records = [(name, value.replace(str(UUID(int=10)).encode(), upper))]
    tried = [field("customer") == UUID(int=10)]
    assert records[0][1] != value
    assert in_spark(small, tried, records) == in_python(tried, records) == [[True]]
