"""Quix Streams' join_asof of the scheduled flights with their planes: prints {"read", "results", "seconds"}.

It has no join by a foreign key: both topics are grouped by the plane first, and joined by equal keys. Arguments:
bootstrap servers, topics of flights and planes, output topic, schemas file, records to read, state folder.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import time
from datetime import timedelta
from pathlib import Path

from fastavro import parse_schema, schemaless_reader
from quixstreams import Application
from quixstreams.models.serializers import Deserializer

servers, flights_topic, planes_topic, output, schemas, expected, folder = sys.argv[1:]
known = {
    int(id_): (found["type"], parse_schema(found["schema"]))
    for id_, found in json.loads(Path(schemas).read_text()).items()
}
seen = {"read": 0, "results": 0, "last": 0.0}


class Framed(Deserializer):
    """Avro behind a zero byte and the schema id."""

    def __call__(self, value, ctx):
        """Decode one record."""
        kind, schema = known[struct.unpack_from(">I", value, 1)[0]]
        return {"type": kind, **schemaless_reader(io.BytesIO(value[5:]), schema, None)}


def count(what):
    """Note that a record was taken."""

    def taken(value):
        seen[what] += 1
        seen["last"] = time.perf_counter()

    return taken


app = Application(
    servers, consumer_group=f"bench-{time.time()}", auto_offset_reset="earliest", state_dir=folder, loglevel="ERROR"
)
flights = app.dataframe(app.topic(flights_topic, key_deserializer="str", value_deserializer=Framed())).update(
    count("read")
)
planes = app.dataframe(app.topic(planes_topic, key_deserializer="str", value_deserializer="json")).update(count("read"))
scheduled = flights.filter(lambda event: event["type"] == "flight.scheduled" and event["tailnum"] is not None)
scheduled = scheduled.apply(lambda event: {**event, "departs_at": str(event["departs_at"])}).group_by("tailnum")
by_plane = planes.apply(lambda change: change["after"]).group_by("tailnum")
joined = scheduled.join_asof(by_plane, how="left", on_merge="keep-left", grace_ms=timedelta(days=7))
joined = joined.update(count("results"))
joined.to_topic(app.topic(output, key_serializer="json", value_serializer="json"))
begun = time.perf_counter()
app.run(timeout=30)
print(json.dumps({"read": seen["read"], "results": seen["results"], "seconds": seen["last"] - begun}))
if seen["read"] < int(expected):
    sys.exit(f"only {seen['read']} of {expected} records came")
