"""An archiver is killed with -9 while it appends, and the archive is exact: short form of T1 for archives.

FACTFOLD_KILLS sets how often (5 in make faults, 50 in make faults-full), FACTFOLD_SEED when; both are printed. Each
kill falls into an append whose rows are being written and are not committed. The checker reads the topic by another
client.
"""

from __future__ import annotations

import os
import random
import uuid

import pytest

from eventstore.kafka.admin import end_offsets, ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import event_topic
from projections import Archiver
from projections.spark.archive.delta_archive import DeltaArchive
from projections.spark.reading.kafka_source import KafkaLog
from tests.faults.command_process import CommandProcess
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
PARTITIONS = 2
APPEND = 500  # offsets: a process makes some of them before it is killed
RECORDS = APPEND * 5 * (KILLS + 1)


@pytest.fixture
def parcels(settings):
    """The name of an event topic with records in it."""
    name = f"killed.{uuid.uuid4().hex[:8]}"
    ensure_topics(settings, [event_topic(name, partitions=PARTITIONS)])
    RecordProducer(settings, deadline=60).send(
        OutgoingRecord(topic=name, key=f"parcel-{n}@0".encode(), value=b"sent" * 20, partition=n % PARTITIONS)
        for n in range(RECORDS)
    )
    return name


def rows_are_written_uncommitted(folder, *, appends):
    """A condition: so many appends are committed, and after them rows have been written once more."""
    goal, rows = len(commits(folder)) + appends, []

    def holds():
        if len(commits(folder)) >= goal:
            rows.append(len(list(folder.glob("partition=*/*.parquet"))))
        return rows and rows[-1] > rows[0]

    return holds


def commits(folder):
    return list(folder.glob("_delta_log/*.json"))


@pytest.mark.faults  # three starts of Spark
def test_an_archive_is_exact_after_its_archiver_was_killed(settings, parcels, spark, tmp_path):
    chance, folder = random.Random(SEED), tmp_path / "archive"
    print(f"FACTFOLD_KILLS={KILLS} FACTFOLD_SEED={SEED}")  # noqa: T201 - how to replay it
    variables = {"FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers}
    command = ["archive", "once", parcels, "--archive", str(folder), "--max-offsets", str(APPEND)]
    for _ in range(KILLS):
        killed = rows_are_written_uncommitted(folder / parcels, appends=chance.randint(2, 4))
        process = CommandProcess(command, variables, tmp_path / "archiver.log")
        wait_until(killed, alive=process.require_alive, what="rows written and not committed")
        process.kill()
    archive = DeltaArchive.open(spark, folder)
    assert 0 < archive.extents([parcels])[parcels].offsets < RECORDS
    Archiver(KafkaLog(settings), archive).catch_up([parcels])
    found = archive.table(parcels).rows(spark).select("partition", "offset", "key", "value").toArrow()
    wanted = [(r.partition, r.offset, r.key, r.value) for r in read_range(settings, parcels)]
    assert sorted(zip(*(column.to_pylist() for column in found.columns), strict=True)) == sorted(wanted)
    assert archive.extents([parcels])[parcels].end == end_offsets(settings, [parcels])[parcels]
