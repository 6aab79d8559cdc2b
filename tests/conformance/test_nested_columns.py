"""Lists, maps and records in tables and views: Spark's own types in the function, canonical JSON in the store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql import functions as F
from sqlalchemy import ARRAY, JSON, Column, Integer, MetaData, Numeric, Text
from sqlalchemy import Table as SqlTable

from cdc.changes.rules import UNAVAILABLE
from eventstore import Aggregate, event
from projections import ProjectionGroup, Table, on, sql_view, view
from projections import field as column
from projections.declaring.binding import check
from projections.declaring.views import Reference
from projections.errors import InvalidDefinition, InvalidPredicate, UndecodableRecord
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


class Route(Aggregate):
    stops: list[Address] = field(default_factory=list)
    load: dict[str, Decimal] = field(default_factory=dict)
    last: Address | None = None

    @event
    class Extended:
        to: Address
        weight: Decimal

    def on_extended(self, e: Extended) -> None:
        self.stops.append(e.to)
        self.load[e.to.city] = e.weight
        self.last = e.to


packed = on(Parcel.Packed)
parcels = Table.from_events(
    Parcel,
    key="parcel_id",
    columns={
        **{name: packed.take(name) for name in ("tags", "prices", "seen")},
        "place": [packed.take("to"), on(Parcel.Moved).take("to")],
    },
)
routes = Table.from_events(Route, key="route_id")
shops = Table.from_changelog(
    SqlTable(
        "shops",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("fees", ARRAY(Numeric(8, 2), dimensions=1)),
        Column("goods", JSON),
        Column("city", Text),
    ),
    topic="shop.public.shops",
    full_identity=True,
    shapes={"goods": dict[str, list[Address]]},
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


@view(key="route_id")
def tours(routes):
    return routes.select("route_id", F.transform("stops", lambda stop: stop["city"]).alias("cities"), "load", "last")


@view(key="id")
def offers(shops):
    return shops.select("id", "fees", F.aggregate("fees", F.lit(0).cast("decimal(18,2)"), _sum).alias("sum"), "goods")


def _sum(one, other):
    return (one + other).cast("decimal(18,2)")


cities = sql_view(
    "cities",
    "SELECT s.id, size(s.goods['a']) AS number, s.goods['a'][0].city AS first FROM shops s",
    tables={"shops": shops},
)

GOODS = '{"z": [], "a": [{"zip": null, "city": "Oslo", "more": 1}, null]}'
TOLD = '{"a":[{"city":"Oslo","zip":null},null],"z":[]}'
FIRST = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def pack(trial):
    prices = {"p": Decimal(2), "b": Decimal("1.5")}
    trial.record("parcel-1", Parcel.Packed(tags=["z", 'a"'], to=Address("Oslo", None), prices=prices, seen=[FIRST]))
    trial.record("parcel-2", Parcel.Packed(tags=[], to=Address("Rome", "1"), prices={}, seen=[]))
    trial.record("route-1", Route.Extended(to=Address("Oslo", None), weight=Decimal(7)))
    trial.put(shops, {"id": 1, "fees": ["1.5"], "goods": GOODS, "city": "Oslo"})
    trial.put(shops, {"id": 2, "fees": None, "goods": " null", "city": "Rome"})


def move(trial):
    trial.record("parcel-1", Parcel.Moved(to=Address("Bergen", "5")))
    trial.record("route-1", Route.Extended(to=Address("Åre", "1"), weight=Decimal("0.5")))
    trial.put(shops, {"id": 1, "fees": ["1.5", "2.25"], "goods": UNAVAILABLE, "city": "Oslo"})


def assert_views_are_right(rows):
    one, two = rows("labels")
    rest = '{"zip":"5","prices":{"b":"1.5000","p":"2.0000"},"first":"2026-01-02T03:04:05.678901Z"}'
    assert one == {"parcel_id": "1", "city": "Bergen", "b": "1.5000", "tags": '["a\\"","z"]', "rest": rest}
    assert (two["b"], two["tags"], two["rest"]) == (None, "[]", '{"zip":"1","prices":{},"first":null}')
    assert rows("by_city") == [{"city": "Bergen", "tags": '["a\\""]'}, {"city": "Rome", "tags": "[]"}]
    load, last = '{"Oslo":"7.0000","Åre":"0.5000"}', '{"city":"Åre","zip":"1"}'
    assert rows("tours") == [{"route_id": "1", "cities": '["Oslo","Åre"]', "load": load, "last": last}]
    first = {"id": 1, "fees": '["1.50","2.25"]', "sum": "3.75", "goods": TOLD}
    assert rows("offers") == [first, {"id": 2, "fees": None, "sum": None, "goods": None}]
    assert rows("cities") == [{"id": 1, "number": 2, "first": "Oslo"}, {"id": 2, "number": None, "first": None}]


GROUP = ProjectionGroup("nested", [labels, by_city, tours, offers, cities])


def test_nested_columns_are_kept_live_as_they_are_rebuilt(spark, tmp_path):
    with ViewTrial(spark, GROUP, tmp_path) as trial:
        pack(trial)
        trial.check()
        move(trial)
        trial.check()
        assert_views_are_right(trial.rows)
        trial.put(shops, {"id": 3, "fees": [], "goods": '{"a": [{"city": "x"}, 5]}', "city": "Rome"})
        with pytest.raises(UndecodableRecord, match="goods") as refused:
            trial.check()
        assert "offset" in (refused.value.place or "")


def test_a_nested_column_is_no_key_and_compared_with_nothing():
    def tagged(parcels):
        return parcels.groupBy("tags").count()

    with pytest.raises(InvalidDefinition, match="'tags' is array<string>, and keys are"):
        view(by="tags")(tagged)
    with pytest.raises(InvalidPredicate, match="kind other"):
        parcels.where(column("tags") == "[]")
    assert parcels.where(~column("tags").is_null()).condition is not None
    captured = SqlTable("t", MetaData(), Column("id", ARRAY(Integer), primary_key=True))
    with pytest.raises(InvalidDefinition, match="keys are"):
        Table.from_changelog(captured, topic="shop.public.t")


def test_a_nested_column_refers_to_nothing():
    def told(shops, parcels):
        return shops

    with pytest.raises(InvalidDefinition, match="'fees' is array"):
        check(replace(view(key="id")(told), declared=(Reference("shops", ("fees",), "parcels"),)))


@pytest.mark.parametrize(("shapes", "cause"), [({"city": list[str]}, "no column of JSON"), ({"goods": int}, "flat")])
def test_a_shape_is_of_a_column_of_json(shapes, cause):
    table = SqlTable(
        "t", MetaData(), Column("id", Integer, primary_key=True), Column("city", Text), Column("goods", JSON)
    )
    with pytest.raises(InvalidDefinition, match=cause):
        Table.from_changelog(table, topic="shop.public.t", shapes=shapes)
