"""Lists, maps and records of events in tables and views: Spark's own types in the function, JSON text in the store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

from eventstore import Aggregate, event
from projections import ProjectionGroup, Table, field, on, view
from projections.errors import InvalidDefinition, InvalidPredicate
from projections.spark import nesting
from projections.testing.trial import ViewTrial


@dataclass
class Address:
    city: str
    zip: str | None


class Parcel(Aggregate):
    @event
    class Packed:
        tags: list[str]
        to: Address
        prices: dict[str, Decimal]
        seen: list[datetime]

    @event
    class Moved:
        to: Address


packed = on(Parcel.Packed)
parcels = Table.from_events(
    Parcel,
    key="parcel_id",
    columns={
        **{column: packed.take(column) for column in ("tags", "prices", "seen")},
        "place": [packed.take("to"), on(Parcel.Moved).take("to")],
    },
)


@view(key="parcel_id")
def labels(parcels):
    """Parts of nested values, and nested values made of them."""
    return parcels.select(
        "parcel_id",
        F.col("place.city").alias("city"),
        F.col("prices")["b"].alias("b"),
        F.array_sort("tags").alias("tags"),
        F.struct("place.zip", "prices", F.get("seen", F.lit(0)).alias("first")).alias("rest"),
    )


@view(by="city")
def by_city(labels):
    return labels.groupBy("city").agg(F.sort_array(F.collect_set(F.get("tags", F.lit(0)))).alias("tags"))


FIRST = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def kept(spark, folder):
    with ViewTrial(spark, ProjectionGroup("parcels", [labels, by_city]), folder) as trial:
        prices = {"b": Decimal("1.5"), "p": Decimal(2)}
        trial.record("parcel-1", Parcel.Packed(tags=["z", 'a"'], to=Address("Oslo", None), prices=prices, seen=[FIRST]))
        trial.record("parcel-2", Parcel.Packed(tags=[], to=Address("Rome", "1"), prices={}, seen=[]))
        trial.check()
        trial.record("parcel-1", Parcel.Moved(to=Address("Bergen", "5")))
        trial.check()
        rest = '{"zip":"5","prices":{"b":1.5000,"p":2.0000},"first":"2026-01-02T03:04:05.678901Z"}'
        one, two = trial.rows("labels")
        assert one == {"parcel_id": "1", "city": "Bergen", "b": "1.5000", "tags": '["a\\"","z"]', "rest": rest}
        assert (two["b"], two["tags"], json.loads(two["rest"])) == (
            None,
            "[]",
            {"zip": "1", "prices": {}, "first": None},
        )
        assert trial.rows("by_city") == [{"city": "Bergen", "tags": '["a\\""]'}, {"city": "Rome", "tags": "[]"}]


def test_nested_values_are_kept_live_as_they_are_rebuilt(spark, tmp_path):
    kept(spark, tmp_path)


MUTANTS = {
    "milliseconds": ("_WRITTEN", {"ignoreNullFields": "false", "timeZone": "UTC"}),
    "maps as they come": ("_ordered", lambda value, kind: value),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_text_that_is_not_canonical_shows(mutant, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(nesting, *MUTANTS[mutant])
    with pytest.raises(AssertionError):
        kept(spark, tmp_path)


def test_a_nested_column_is_no_key_and_compared_with_nothing():
    def tagged(parcels):
        return parcels.groupBy("tags").count()

    with pytest.raises(InvalidDefinition, match="'tags' is array<string>, and keys are"):
        view(by="tags")(tagged)
    with pytest.raises(InvalidPredicate, match="kind other"):
        parcels.where(field("tags") == "[]")
    assert parcels.where(~field("tags").is_null()).condition is not None
