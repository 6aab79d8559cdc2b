"""Histories in Spark: what each record of a row or a stream makes of its versions, and what is refused."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import ProjectionGroup, Table, history, on, view
from projections.errors import UndecodableRecord
from projections.spark.bulk import WholeTables
from projections.spark.events import decode
from projections.spark.failures import described
from projections.spark.kinds import Reduction, kind_of
from projections.spark.views.disclosing import Disclosure
from projections.spark.views.view_functions import view_columns
from tests.conformance.history_views import event_history_of
from tests.integration.payments import CUSTOMERS, micros
from tests.rows import each_row
from tests.shipments import REGISTRY as SHIPMENTS
from tests.spark.test_as_of import RAW, UNAVAILABLE, change
from tests.spark.test_upcasting import DECLARED, RECORDS
from tests.version_tables import HISTORIES

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000
customers = Table.from_changelog(CUSTOMERS, topic="customers")


class Parcel(Aggregate):
    @event
    class Sent:
        by: str | None
        weight: int

    @event
    class Moved:
        place: str

    @event
    class Lost:
        """Nowhere."""


COLUMNS = {
    "carrier": on(Parcel.Sent).take("by"),
    "place": [on(Parcel.Moved).take("place"), on(Parcel.Sent).set("sender")],
}
parcels = Table.from_events(Parcel, key="parcel_id", columns=COLUMNS)
REGISTRY = {kind.schema_id: kind.registered for kind in Parcel.event_types.values()}


def rows_of(spark, table, records, registry):
    rows = [
        dict(zip(RAW.names, ("t", 0, offset, key, value, next(iter(rest), None)), strict=True))
        for offset, (key, value, *rest) in enumerate(records)
    ]
    raw = spark.createDataFrame(pa.Table.from_pylist(rows, RAW)).coalesce(1)
    return kind_of(table).complete(Reduction(registry).reduce(raw, table))


def versions(spark, declared, records, *columns, registry=REGISTRY):
    """The rows of a history, in order: the columns, and both times as minutes since 2024 or 1970, or None."""
    (name,) = declared.tables
    frames = {name: rows_of(spark, declared.table(name), records, registry)}
    group = ProjectionGroup("g", [declared])
    tables = WholeTables(frames.__getitem__, group, Disclosure({}, None), spark, few=True)
    kinds = view_columns(spark, group)[declared.name]
    found = tables.apply(declared, kinds).withColumns({c: F.unix_micros(c) for c in ("valid_from", "valid_to")})
    rows = [(*(row[c] for c in (*columns, "valid_from", "valid_to")), row.is_current) for row in found.collect()]
    assert all(current == (end is None) for *_, end, current in rows)
    in_time = sorted(rows, key=lambda row: (row[-3] is not None, row[-3]))
    return [(*values, *map(minute, times)) for *values, start, end, _ in in_time for times in [(start, end)]]


def minute(at):
    """Minutes since the beginning of the payments' history; None where there is no time."""
    return None if at is None else (at - micros(0)) // MINUTE


IN_ORDER, BACKWARDS = 1, -1


def test_each_change_of_a_row_begins_a_version_and_ends_the_one_before(small):
    cases = [*itertools.product(HISTORIES, (IN_ORDER, BACKWARDS))]
    changes = [change(*what, key=n) for n, (case, order) in enumerate(cases) for what in HISTORIES[case][0][::order]]
    found = versions(small, history("customer_history", customers), changes, "id", "credit_score")
    by_case = {one: [rest for number, *rest in found if number == n] for n, one in enumerate(cases)}
    assert by_case == {one: [[*row] for row in HISTORIES[one[0]][1]] for one in cases}


def test_an_unavailable_value_is_that_of_the_version_before(small):
    records = [
        change("c", 1, 1, 10, note="long"), change("u", 2, 2, 20, note=UNAVAILABLE), change("u", 3, 3, 30, note=None),
        change("u", 4, 4, 40, note=UNAVAILABLE),
    ]  # fmt: skip
    found = versions(small, history("customer_history", customers), records, "note")
    assert found == [("long", 1, 2), ("long", 2, 3), (None, 3, 4), (None, 4, None)]


@each_row(
    ("keep", "right"),
    [
        ("4 minutes", [(500, 1, 3), (600, 3, 6), (700, 6, 7)]),
        ("3 minutes", [(600, 3, 6), (700, 6, 7)]),
        ("1 minute", [(600, 3, 6), (700, 6, 7)]),
        ("59 seconds", [(700, 6, 7)]),
    ],
)
def test_a_version_leaves_once_it_ended_longer_than_keep_before_the_newest_change(small, keep, right):
    records = [change("c", 500, 1, 10), change("u", 600, 3, 20), change("u", 700, 6, 30), change("d", None, 7, 40)]
    assert versions(small, history("customer_history", customers, keep=keep), records, "credit_score") == right


# ---- of events


def recorded(version, happened, at):
    value = None if happened is None else event_type_of(happened).encode(happened)
    return (f"parcel-p@{version}", value, None if at is None else told(micros(at)))


def told(at):
    return (EPOCH + timedelta(microseconds=at)).isoformat()


def sent(by="post"):
    return Parcel.Sent(by=by, weight=1)


def moved(place):
    return Parcel.Moved(place=place)


STREAMS = {
    "each event that sets a column": (
        [recorded(0, sent(), 1), recorded(1, moved("Rome"), 2), recorded(2, sent(None), 4)],
        [("post", "sender", 1, 2), ("post", "Rome", 2, 4), (None, "sender", 4, None)],
    ),
    "not one that sets none": (
        [recorded(0, sent(), 1), recorded(1, Parcel.Lost(), 2)],
        [("post", "sender", 1, None)],
    ),
    "but the first one, as the row is there": (
        [recorded(0, Parcel.Lost(), 1), recorded(1, moved("Rome"), 3)],
        [(None, None, 1, 3), (None, "Rome", 3, None)],
    ),
    "of one time, the last": (
        [recorded(0, sent(), 1), recorded(1, moved("Rome"), 2), recorded(2, moved("Pisa"), 2)],
        [("post", "sender", 1, 2), ("post", "Pisa", 2, None)],
    ),
    "a clock set back": (
        [recorded(0, sent(), 1), recorded(1, moved("Rome"), 5), recorded(2, moved("Pisa"), 3)],
        [("post", "sender", 1, 3), ("post", "Pisa", 3, None)],
    ),
    "one that comes twice": ([recorded(0, sent(), 1), recorded(0, sent(), 1)], [("post", "sender", 1, None)]),
    "none of a deleted stream": (
        [recorded(0, sent(), 1), recorded(1, moved("Rome"), 2), recorded(0, None, 3)],
        [],
    ),
    "none of a stream that compaction left a part of": ([recorded(2, sent(), 1), recorded(3, None, 3)], []),
}


def test_a_version_of_a_stream_begins_with(small):
    cases = [*itertools.product(STREAMS, (IN_ORDER, BACKWARDS))]
    records = [
        (key.replace("parcel-p@", f"parcel-{n}@"), *rest)
        for n, (case, order) in enumerate(cases)
        for key, *rest in STREAMS[case][0][::order]
    ]
    found = versions(small, history("parcel_history", parcels), records, "parcel_id", "carrier", "place")
    by_case = {one: [rest for number, *rest in found if number == str(n)] for n, one in enumerate(cases)}
    assert by_case == {one: [[*row] for row in STREAMS[one[0]][1]] for one in cases}


@each_row(
    ("records", "words"),
    [
        ([recorded(0, sent(), None)], "header ce_time is missing"),
        ([recorded(0, sent(), 1), recorded(2, sent(), 2)], "events of t-p are missing"),
        ([recorded(1, Parcel.Lost(), 1)], "events of t-p are missing"),
    ],
    ids=["no time", "a gap", "no beginning"],
)
def test_events_of_which_no_history_follows_are_refused(small, records, words):
    declared = history("parcel_history", Table.from_events(Parcel, key="parcel_id", columns=COLUMNS, topic="t"))
    with pytest.raises(UndecodableRecord) as caught, described("test"):
        versions(small, declared, records)
    assert words in caught.value.message
    assert caught.value.remedy


@each_row("reads", ["in the JVM", "in Python"])
def test_events_of_older_versions_and_those_that_became_two_are_folded_as_plain_python_does(small, reads, monkeypatch):
    monkeypatch.setattr(decode, "avro_in_the_jvm", lambda: reads == "in the JVM")
    times = {key: micros(number % 3) for number, (_, key, _) in enumerate(RECORDS)}
    records = [(key, value, told(times[key])) for _, key, value in RECORDS]
    declared = history("shipment_history", DECLARED)
    columns = [column for column, kind in DECLARED.columns.items() if kind.kind != "timestamp"]
    found = versions(small, declared, records, *columns, registry=SHIPMENTS)
    right = event_history_of(DECLARED, RECORDS, times, registry=SHIPMENTS)
    assert sorted(found, key=repr) == sorted(
        ((*(row[c] for c in columns), *map(minute, at)) for row, *at in right), key=repr
    )
    assert {row[columns.index("last")] for row in found} > {"sea"}


def test_a_view_over_a_history_finds_what_a_row_was_before(small):
    tables = {"customer_history": history("customer_history", customers)}

    @view(by="id", key="valid_from", tables=tables)
    def score_changes(customer_history):
        from pyspark.sql import Window

        in_time = Window.partitionBy("id").orderBy("valid_from")
        before = F.lag("credit_score").over(in_time)
        return customer_history.select("id", "valid_from", (F.col("credit_score") - before).alias("by"))

    columns = view_columns(small, ProjectionGroup("g", [score_changes]))
    assert list(columns["score_changes"]) == ["id", "valid_from", "by"]
