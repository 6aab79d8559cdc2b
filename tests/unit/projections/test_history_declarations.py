"""Histories as they are declared: what they are of, what their columns are called, what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import pytest
import sqlalchemy as sa

from eventstore import Aggregate, Personal, event
from projections import ProjectionGroup, Stream, Table, field, history, on, sql_view, view
from projections.declaring.columns import ColumnType
from projections.declaring.timing.validity import columns_of, validity_of
from projections.errors import InvalidDefinition
from tests.errors import refused


class Trip(Aggregate):
    """Its state has a driver."""

    driver: str | None = None

    @event
    class Begun:
        driver: str

    @event
    class Ended:
        """Nothing more is known."""

    def on_begun(self, event):
        self.driver = event.driver


class Rider(Aggregate):
    @event
    class Joined:
        name: Annotated[str, Personal(erased="someone")]


DRIVER = {"driver": on(Trip.Begun).take("driver")}


def captured(*columns, name="cars"):
    kinds = [sa.Column(c, sa.BigInteger) for c in columns]
    return sa.Table(name, sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), *kinds)


cars = Table.from_changelog(captured("price"), topic="cars")
car_versions = Table.versions_of(captured("price"), topic="cars", name="car_versions")
trips = Table.from_events(Trip, key="trip_id", columns=DRIVER)


@pytest.mark.parametrize("table", [cars, car_versions], ids=["current rows", "versions"])
def test_a_history_has_the_table_s_columns_and_its_times(table):
    found = history("car_history", table)
    assert found.by == ("id",)
    assert found.key == ("id", "valid_from")
    group = ProjectionGroup("g", [found])
    assert {c: kind.kind for c, kind in columns_of(group, "car_history").items()} == {
        "id": "long", "price": "long", "valid_from": "timestamp", "valid_to": "timestamp", "is_current": "boolean",
    }  # fmt: skip
    assert group.history_topics == ("cars",)


def test_a_history_and_as_of_joins_share_the_versions_of_a_table():
    (versions,) = history("car_history", car_versions).tables.values()
    assert versions is car_versions


def test_a_history_reads_columns_by_their_names_in_records():
    """An attribute's name is not always that of its column, which records have."""
    model = captured()
    model.append_column(sa.Column("Sold On", sa.BigInteger, key="sold_on"))
    (versions,) = history("car_history", Table.from_changelog(model, topic="cars")).tables.values()
    assert versions.record_names == {"sold_on": "Sold On"}


def test_a_history_of_events_reads_their_times():
    found = ProjectionGroup("g", [history("trip_history", trips)])
    assert found.headed_topics == {"trip"}
    assert columns_of(found, "trip_history")["driver"] == ColumnType("string")


def test_the_history_of_a_current_table_and_the_table_are_kept_in_one_group():
    @view(key="trip_id")
    def drivers(trips):
        return trips

    group = ProjectionGroup("g", [drivers, history("trip_history", trips)])
    assert len(group.tables) == 2


@pytest.mark.parametrize(
    ("change", "of"),
    [({"keep": "3 days"}, "kept"), ({"named": "known"}, "named"), ({"topic": "t"}, "topic")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_group_s_fingerprint_changes_with_a_history(change, of):
    plain, other = (ProjectionGroup("g", [history("h", trips, **given)]) for given in ({}, change))
    assert plain.fingerprint() != other.fingerprint(), of


def test_a_fold_that_changes_changes_the_fingerprint_of_its_history():
    other = Table.from_events(
        Trip, key="trip_id", columns={"driver": [*[on(Trip.Begun).take("driver")], on(Trip.Ended).set("")]}
    )
    assert (
        ProjectionGroup("g", [history("h", trips)]).fingerprint()
        != ProjectionGroup("g", [history("h", other)]).fingerprint()
    )


def test_the_times_may_be_called_otherwise():
    validity = validity_of(ProjectionGroup("g", [history("h", cars, named="known", keep=timedelta(days=1))]), "h")
    assert (validity.start, validity.end, validity.keep) == ("known_from", "known_to", 86_400_000_000)


joined = sql_view("joined", "SELECT id, price FROM cars", tables={"cars": cars})
REFUSED = {
    "a view": (lambda: history("h", joined), "is of view 'joined', whose rows have no time"),
    "a stream": (
        lambda: history("h", Stream.from_events(Trip, events=Trip.Begun, key="trip_id")),
        "is of EventStream, whose rows have no time",
    ),
    "a view topic": (lambda: history("h", Table.from_view_topic(captured("price"), topic="t")), "is of ViewTopicTable"),
    "some rows": (lambda: history("h", cars.where(field("price") > 3)), "is of some rows of a table"),
    "evolve": (lambda: history("h", Table.from_events(Trip, key="trip_id")), "that evolve folds"),
    "a column of a time's name": (
        lambda: history("h", Table.from_changelog(captured("Valid_To"), topic="t")), "two columns 'Valid_To'",
    ),
    "a column is_current": (
        lambda: history("h", Table.from_changelog(captured("is_current"), topic="t")), "two columns 'is_current'",
    ),
    "a bad name": (lambda: history("Car History", cars), "view 'Car History' is not a usable name"),
    "a bad name of times": (lambda: history("h", cars, named="valid from"), "'valid from' is not a usable name"),
    "months": (lambda: history("h", cars, keep="12 months"), "keep '12 months' is of months"),
    "nothing": (lambda: history("h", cars, keep="0 days"), "keep '0 days' is not positive"),
    "no length": (lambda: history("h", cars, keep="long"), "keep 'long' is no length of time"),
    "of no history": (lambda: validity_of(ProjectionGroup("g", [joined]), "joined"), "serves no history 'joined'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_history_is_refused_with_a_remedy(case):
    refused(*REFUSED[case])


@pytest.mark.parametrize("declared", [{"key": "id"}, {"by": "id"}], ids=["as a root", "as a partition"])
def test_versions_are_no_rows_of_any_other_view(declared):
    with pytest.raises(InvalidDefinition, match="'car_versions', which holds the versions of a table") as caught:

        @view(**declared)
        def rows(car_versions):
            return car_versions

    assert "history('car_versions_history', car_versions)" in caught.value.remedy


def test_a_personal_column_makes_its_history_personal():
    riders = Table.from_events(Rider, key="rider_id", columns={"name": on(Rider.Joined).take("name")})
    assert ProjectionGroup("g", [history("h", riders)]).personal
