"""departure_weather = flights ⋈ the last weather observed at their airport before they leave, two hours old at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections import ProjectionGroup, Table, join_as_of, view
from sample_app.flights.model import Weather
from sample_app.flights.view import flight_details, flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

weather = Table.from_changelog(Weather, topic="flights.public.weather")
MEASURED = ("temp", "wind_speed", "visib")
TOLERANCE_HOURS = 2
# Of the flights of a day none leaves between 06:00 and 09:00 UTC: neither does a match cross this hour.
DAY_BEGINS = 7


def operating_day(time: str) -> str:
    """The day of operation of a time, in SQL: a day in New York whether its clocks show summer time or not."""
    return f"date_from_unix_date(CAST((unix_seconds({time}) - {DAY_BEGINS} * 3600) div 86400 AS INT)) AS operating_day"


@view(key="flight_id", tables={"flights": flights})
def departures(flights: DataFrame) -> DataFrame:
    """One row a flight, with the partition that it is joined in."""
    return flights.selectExpr("flight_id", "origin", operating_day("departs_at"), "departs_at")


@view(key="id")
def observations(weather: DataFrame) -> DataFrame:
    """One row an observation, with its partition."""
    return weather.selectExpr("id", "origin", operating_day("time_hour"), "time_hour AS observed_at", *MEASURED)


@view(by=("origin", "operating_day"), key="flight_id")
def departure_weather(departures: DataFrame, observations: DataFrame) -> DataFrame:
    """One row a flight; without an observation of the last two hours it has no weather."""
    return join_as_of(
        departures,
        observations,
        on=("origin", "operating_day"),
        times=("departs_at", "observed_at"),
        tolerance=f"{TOLERANCE_HOURS} hours",
        take=["observed_at", *MEASURED],
    )


flights_and_weather = ProjectionGroup("flights", [flight_details, departure_weather])
