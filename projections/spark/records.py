"""The raw records of a live batch, by topic: one read through the driver when small, a scan a topic when large."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from projections.environment import Environment
from projections.spark.exchange import DRIVER_ROWS
from projections.spark.kafka_source import BULK, LIVE, OffsetRange, read_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_records(environment: Environment, offsets: OffsetRange) -> Mapping[str, DataFrame]:
    """The committed records of the range, for each topic that has any offsets in it."""
    if offsets.records > DRIVER_ROWS:
        client = environment.settings.kafka.jvm()
        topics = offsets.changed_topics()
        return {t: read_range(environment.spark, client, offsets.only(t), options=BULK) for t in topics}
    return _read_small(environment, offsets)


def _read_small(environment: Environment, offsets: OffsetRange) -> Mapping[str, DataFrame]:
    """All topics in one Spark job; its few rows are then used several times without a second look at the broker."""
    client = environment.settings.kafka.jvm()
    options = {**LIVE, "kafka.group.id": _reader(client)}
    found = read_range(environment.small, client, offsets, options=options).coalesce(1).toArrow()
    topics = pc.unique(found["topic"]).to_pylist()
    return {t: environment.small.createDataFrame(found.filter(pc.equal(found["topic"], t))).coalesce(1) for t in topics}


def _reader(client: Mapping[str, str]) -> str:
    """The group of the executors' consumers; nothing is ever committed to it.

    A fixed group lets them keep their consumers from batch to batch, which halves the time of a small read. One is kept
    for a group and a partition, wherever it is connected to: so the brokers are part of the group's name.
    """
    return f"factfold-{hashlib.sha256(client['bootstrap.servers'].encode()).hexdigest()[:12]}"
