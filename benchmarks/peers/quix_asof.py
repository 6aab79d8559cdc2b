"""Quix Streams' join_asof of two topics of equal keys: prints {"events", "seconds"}.

Arguments: bootstrap servers, topic of orders, topic of customers, output topic, events to expect, state folder.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta

from quixstreams import Application

servers, orders_topic, customers_topic, output, expected, folder = sys.argv[1:]
app = Application(
    servers, consumer_group=f"bench-{time.time()}", auto_offset_reset="earliest", state_dir=folder, loglevel="ERROR"
)
seen = {"events": 0, "last": 0.0}


def count(value):
    """Note that an event was taken."""
    seen["events"] += 1
    seen["last"] = time.perf_counter()


orders, customers = (
    app.dataframe(app.topic(topic, key_deserializer="str", value_deserializer="json")).update(count)
    for topic in (orders_topic, customers_topic)
)
joined = orders.join_asof(customers, how="inner", on_merge="keep-left", grace_ms=timedelta(days=7))
joined.to_topic(app.topic(output, key_serializer="str", value_serializer="json"))
begun = time.perf_counter()
app.run(timeout=20)
print(json.dumps({"events": seen["events"], "seconds": seen["last"] - begun}))
if seen["events"] < int(expected):
    sys.exit(f"only {seen['events']} of {expected} events came")
