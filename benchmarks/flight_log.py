"""The flights of one or more years in Kafka, events and ordinary tables, by the whole road."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from eventstore import Settings
from eventstore.kafka.admin import OffsetReader
from eventstore.kafka.consumer import read_range, read_schemas
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from factfold.stack import StackInfo
from sample_app.flights.demo import append_flights, write_tables
from sample_app.flights.flight import Flight
from sample_app.flights.model import Base
from sample_app.flights.source import read_flights
from sample_app.road import lay_road
from sample_app.story import Story

EVENTS = Flight.category
AIRLINES, PLANES, AIRPORTS = (f"flights.public.{table}" for table in ("airlines", "planes", "airports"))


@dataclass
class FlightLog:
    """The topics that `flight_details` is made of; ``years`` counts how often the flights of the year are in them.

    ``first_year`` has the offsets where its events end.
    """

    settings: Settings
    views_url: str
    first_year: Mapping[int, int]
    years: int = 1

    @staticmethod
    def laid(story: Story, info: StackInfo, *, flights: int | None) -> FlightLog:
        """Append the year, or its first flights, to the event store and wait until Debezium has captured everything."""
        road = lay_road(info, "flights", aggregates=[Flight], tables=Base.metadata)
        write_tables(road)
        append_flights(story, road, read_flights(flights), text="events appended")
        road.wait_until_captured()
        with OffsetReader(road.settings) as offsets:
            return FlightLog(road.settings, road.views_url, offsets.end_offsets([EVENTS])[EVENTS])

    def multiply(self, years: int) -> None:
        """Write the records of the events again under the ids of other flights, until there are so many years."""
        producer = RecordProducer(self.settings)
        for year in range(self.years, years):
            producer.send(self._copied(year))
        self.years = years

    def _copied(self, year: int) -> Iterator[OutgoingRecord]:
        for record in read_range(self.settings, EVENTS, end=self.first_year):
            yield OutgoingRecord(
                topic=EVENTS, partition=record.partition, key=_of_year(record.key, year),
                value=record.value, headers=record.headers,
            )  # fmt: skip

    def schemas_file(self, folder: Path) -> Path:
        """What the events' schema ids mean, for a program that is not ours."""
        schemas = {
            str(id_): {"type": s.name, "schema": dict(s.schema)} for id_, s in read_schemas(self.settings).items()
        }
        path = folder / "schemas.json"
        path.write_text(json.dumps(schemas))
        return path


def _of_year(key: bytes | None, year: int) -> bytes:
    return (key or b"").replace(b"@", b"-y%d@" % year)
