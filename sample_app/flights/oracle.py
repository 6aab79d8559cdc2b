"""The same join by pandas, from the source tables: independent of events, topics, Spark and the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import sqlalchemy as sa

from sample_app.flights.view import VIEW_COLUMNS
from sample_app.flights.weather_view import DAY_BEGINS, MEASURED, TOLERANCE_HOURS

_WHOLE = ("flight_number", "dep_delay", "arr_delay", "distance", "built", "seats")


def expected_details(flights: pd.DataFrame, reassigned: Mapping[str, str], source: sa.Engine) -> pd.DataFrame:
    """flight_details as it must be, sorted by flight_id: the file's flights joined with the tables as they are now."""
    airlines, planes, airports = (_read(source, table) for table in ("airlines", "planes", "airports"))
    details = _flights(flights, reassigned)
    details = details.merge(airlines.rename(columns={"name": "carrier_name"}), on="carrier")
    details = details.merge(planes.rename(columns={"year": "built"}), on="tailnum", how="left")
    for end in ("origin", "dest"):
        named = {"faa": end, "name": f"{end}_name", "tzone": f"{end}_zone"}
        details = details.merge(airports.rename(columns=named), on=end, how="left", suffixes=("", f"_{end}"))
    result = details[list(VIEW_COLUMNS)].astype({c: "Int64" for c in _WHOLE})
    return result.sort_values("flight_id", ignore_index=True)


def expected_weather(flights: pd.DataFrame, source: sa.Engine) -> pd.DataFrame:
    """departure_weather as it must be, sorted by its key: the last observation of the airport, of the whole year."""
    left = flights[["flight_id", "origin", "departs_at"]].sort_values("departs_at", kind="stable")
    left["operating_day"] = (left["departs_at"] - pd.Timedelta(hours=DAY_BEGINS)).dt.date
    left["departs_at"] = left["departs_at"].dt.as_unit("us")
    observed = _read(source, "weather").sort_values(["time_hour", "id"]).drop(columns="id")
    observed["observed_at"] = pd.to_datetime(observed.pop("time_hour"), utc=True).dt.as_unit("us")
    joined = pd.merge_asof(
        left, observed, left_on="departs_at", right_on="observed_at", by="origin",
        tolerance=pd.Timedelta(hours=TOLERANCE_HOURS),
    )  # fmt: skip
    measured = {
        column: joined[column].map(str, na_action="ignore") for column in MEASURED
    }  # as the store shows decimals
    columns = ["flight_id", "origin", "operating_day", "departs_at", "observed_at", *MEASURED]
    return joined.assign(**measured)[columns].sort_values(["origin", "operating_day", "flight_id"], ignore_index=True)


def _flights(flights: pd.DataFrame, reassigned: Mapping[str, str]) -> pd.DataFrame:
    moved = flights["flight_id"].map(reassigned)
    status = pd.Series("arrived", index=flights.index)
    status[flights["arr_time"].isna()] = "departed"
    status[flights["dep_time"].isna()] = "cancelled"
    landed = flights["arr_time"].notna() & flights["dep_time"].notna()
    return flights.assign(
        tailnum=moved.fillna(flights["tailnum"]), flight_number=flights["flight"], status=status,
        arr_delay=flights["arr_delay"].where(landed),
    )  # fmt: skip


_COLUMNS = {
    "airlines": ("carrier", "name"),
    "planes": ("tailnum", "manufacturer", "model", "year", "seats"),
    "airports": ("faa", "name", "tzone"),
    "weather": ("id", "origin", "time_hour", *MEASURED),
}


def _read(source: sa.Engine, table: str) -> pd.DataFrame:
    query = sa.text(f"SELECT {', '.join(_COLUMNS[table])} FROM {table}")
    with source.connect() as connection:
        return pd.read_sql_query(query, connection, coerce_float=False)


def as_arrow(details: pd.DataFrame, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The frame as Arrow batches of the view's own types, for its digest; NaN of a text column is null."""
    nothing: Any = None  # pandas takes it where its stubs do not
    clean = details.astype(object).where(details.notna(), nothing)
    batches: list[pa.RecordBatch] = pa.Table.from_pandas(clean, schema=schema, preserve_index=False).to_batches()
    return batches
