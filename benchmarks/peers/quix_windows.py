"""Windows and joins by time of Quix Streams: prints {"read", "results", "seconds"}.

The key deserializer takes the person out of the key, and both topics are partitioned by it: nothing is grouped again.
Seconds count from the first record to the last result. Arguments: tumbling, session, interval or asof; bootstrap
servers, topics of visits and clicks, output topic, records to read, state folder.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timedelta

from quixstreams import Application
from quixstreams.dataframe.windows.aggregations import Count
from quixstreams.models.serializers import Deserializer

kind, servers, visits_topic, clicks_topic, output, expected, folder = sys.argv[1:]
DAY = timedelta(days=1)
seen = {"read": 0, "results": 0, "first": 0.0, "last": 0.0}


class Person(Deserializer):
    """The person of a key, as text."""

    def __call__(self, value, ctx):
        """Decode one key."""
        return str(json.loads(value)["person"])


def at(column):
    """The milliseconds of a row's time."""

    def taken(value, headers, timestamp, timestamp_type):
        return round(datetime.fromisoformat(value["after"][column]).timestamp() * 1000)

    return taken


def count_read(value):
    """Note that a record came."""
    if not seen["read"]:
        seen["first"] = time.perf_counter()
    seen["read"] += 1


def count_result(value):
    """Note that a result was computed."""
    seen["results"] += 1
    seen["last"] = time.perf_counter()


def rows(topic, column):
    """The rows of a topic, each counted."""
    source = app.topic(topic, key_deserializer=Person(), value_deserializer="json", timestamp_extractor=at(column))
    return app.dataframe(source).update(count_read).apply(lambda change: change["after"])


def visits():
    """The visits."""
    return rows(visits_topic, "visited_at")


def clicks():
    """The clicks."""
    return rows(clicks_topic, "clicked_at")


def computed():
    """The results of the kind that is asked for; windows show what they count so far, as a view does."""
    if kind == "tumbling":
        return visits().tumbling_window(timedelta(minutes=1), grace_ms=DAY).agg(visits=Count()).current()
    if kind == "session":
        return visits().session_window(timedelta(minutes=15), grace_ms=DAY).agg(visits=Count()).current()
    if kind == "interval":
        bounds = {"backward_ms": 0, "forward_ms": timedelta(minutes=10)}
        return visits().join_interval(clicks(), how="inner", on_merge="keep-left", grace_ms=DAY, **bounds)
    return clicks().join_asof(visits(), how="left", on_merge="keep-left", grace_ms=DAY)


app = Application(
    servers, consumer_group=f"bench-{time.time()}", auto_offset_reset="earliest", state_dir=folder, loglevel="ERROR"
)
computed().update(count_result).to_topic(app.topic(output, key_serializer="str", value_serializer="json"))
app.run(timeout=15, collect=False)
seconds = seen["last"] - seen["first"]
print(json.dumps({"read": seen["read"], "results": seen["results"], "seconds": seconds}))
if seen["read"] < int(expected):
    sys.exit(f"only {seen['read']} of {expected} records came")
