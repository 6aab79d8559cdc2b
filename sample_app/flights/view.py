"""flight_details = flights ⋈ airlines ⋈ planes ⋈ airports (of origin and of destination)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections import ProjectionGroup, Table, on, view
from sample_app.flights.flight import Flight
from sample_app.flights.model import Airline, Airport, Plane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

flights = Table.from_events(
    Flight,
    key="flight_id",
    columns={
        **{
            c: on(Flight.Scheduled).take(c)
            for c in ("carrier", "flight_number", "origin", "dest", "departs_at", "distance")
        },
        "tailnum": [on(Flight.Scheduled).take("tailnum"), on(Flight.Reassigned).take("tailnum")],
        "status": [
            on(Flight.Scheduled).set("scheduled"),
            on(Flight.Departed).set("departed"),
            on(Flight.Arrived).set("arrived"),
            on(Flight.Cancelled).set("cancelled"),
        ],
        "dep_delay": on(Flight.Departed).take("delay"),
        "arr_delay": on(Flight.Arrived).take("delay"),
    },
)
airlines = Table.from_changelog(Airline, topic="flights.public.airlines")
planes = Table.from_changelog(Plane, topic="flights.public.planes")
airports = Table.from_changelog(Airport, topic="flights.public.airports")


@view(key="flight_id")
def flight_details(flights: DataFrame, airlines: DataFrame, planes: DataFrame, airports: DataFrame) -> DataFrame:
    """One row a flight of a known airline; planes and airports that are not known are left empty."""
    carriers = airlines.select("carrier", airlines.name.alias("carrier_name"))
    aircraft = planes.select("tailnum", "manufacturer", "model", "seats", planes.year.alias("built"))
    origins = airports.select(airports.faa.alias("origin"), airports.name.alias("origin_name"))
    destinations = airports.select(
        airports.faa.alias("dest"), airports.name.alias("dest_name"), airports.tzone.alias("dest_zone")
    )
    joined = (
        flights.join(carriers, "carrier")
        .join(aircraft, "tailnum", "left")
        .join(origins, "origin", "left")
        .join(destinations, "dest", "left")
    )
    return joined.select(*VIEW_COLUMNS)


VIEW_COLUMNS = (
    "flight_id", "carrier", "carrier_name", "flight_number", "departs_at", "status", "dep_delay", "arr_delay",
    "distance", "origin", "origin_name", "dest", "dest_name", "dest_zone", "tailnum", "manufacturer", "model", "built",
    "seats",
)  # fmt: skip

flight_views = ProjectionGroup("flights", [flight_details])
