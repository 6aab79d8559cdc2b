"""The view of the flights with a topic, for the process that is killed; and what a reader makes of the topic."""

from __future__ import annotations

import json
from dataclasses import replace

import sqlalchemy as sa

from eventstore.kafka.consumer import read_range
from projections import ProjectionGroup, ViewTopic
from sample_app.flights.view import flight_details

TOPIC = "flight-details"
SHOWN = ("flight_id", "carrier_name", "status", "arr_delay", "tailnum", "dest_zone")

flight_views = ProjectionGroup("flights", [replace(flight_details, topic=ViewTopic(TOPIC))])


def assert_topic_is_the_view(environment):
    """The last record of each key, against the rows of the view."""
    found = {}
    for record in read_range(environment.log.settings, TOPIC):
        found.pop(record.key, None)
        if record.value is not None:
            row = json.loads(record.value)
            found[record.key] = tuple(row[name] for name in SHOWN)
    with environment.store.looking() as connection:
        rows = connection.execute(sa.text(f"SELECT {', '.join(SHOWN)} FROM flight_details")).all()
    assert sorted(found.values(), key=str) == sorted((tuple(row) for row in rows), key=str)
