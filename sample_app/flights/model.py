"""The ordinary tables that the flights refer to."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated

from sqlalchemy import DateTime, Numeric
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Degrees = Annotated[Decimal, mapped_column(Numeric(10, 7))]
Measure = Annotated[Decimal, mapped_column(Numeric(12, 4))]


class Base(DeclarativeBase):
    """Airlines, airports, planes and weather."""


class Airline(Base):
    __tablename__ = "airlines"

    carrier: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]


class Airport(Base):
    __tablename__ = "airports"

    faa: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    lat: Mapped[Degrees]
    lon: Mapped[Degrees]
    alt: Mapped[int]
    tz: Mapped[int | None]
    dst: Mapped[str | None]
    tzone: Mapped[str | None]


class Plane(Base):
    __tablename__ = "planes"

    tailnum: Mapped[str] = mapped_column(primary_key=True)
    year: Mapped[int | None]
    type: Mapped[str]
    manufacturer: Mapped[str]
    model: Mapped[str]
    engines: Mapped[int]
    seats: Mapped[int]
    speed: Mapped[int | None]
    engine: Mapped[str]


class Weather(Base):
    """Hourly weather; the hour that the end of summer time repeats is why it needs a number of its own."""

    __tablename__ = "weather"

    id: Mapped[int] = mapped_column(primary_key=True)
    origin: Mapped[str]
    time_hour: Mapped[dt.datetime] = mapped_column(DateTime(timezone=True))
    temp: Mapped[Measure | None]
    dewp: Mapped[Measure | None]
    humid: Mapped[Measure | None]
    wind_dir: Mapped[int | None]
    wind_speed: Mapped[Measure | None]
    wind_gust: Mapped[Measure | None]
    precip: Mapped[Measure | None]
    pressure: Mapped[Measure | None]
    visib: Mapped[Measure | None]
