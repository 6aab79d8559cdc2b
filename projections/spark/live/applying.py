"""Batches brought to their end whatever their records are: with schemas that come late, without records that are bad.

    the batch as it is
      └ a batch of records that cannot be unpacked, and the group tolerates it → look for all such batches → set their
        records aside, and the same range again around them
      └ an unknown schema id → wait for the schema, plan again, the same range again
      └ a bad record, and the group tolerates them → ask which records are bad, all at once → set them aside, and the
        same range again without them

A round costs a few queries, however many records are bad; what is found later than in the first is mostly what stands
behind them in their streams.
"""

from __future__ import annotations

import functools
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import structlog

from eventstore.schema_registry import RegisteredSchema
from projections.declaring.group import ProjectionGroup
from projections.errors import EventsMissing, RecordNotUnpacked, UndecodableRecord, UnknownSchemaId
from projections.faults import FORGOTTEN
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import DeadLetters, RecordLog
from projections.logs.ranges import around, not_unpacked_in
from projections.logs.set_aside import SetAside
from projections.spark.failures import described
from projections.spark.judging import Judge
from projections.spark.live.incremental import BatchReport, LiveBatches
from projections.spark.reading.records import Rows, left_out, read_records

_LOOK_SECONDS: Final = 0.2
# Undecodable, unparsed, misfit, without a time, behind a gap, and behind the gap that those left: more is our mistake.
_ROUNDS: Final = 8

log = structlog.get_logger()


@contextmanager
def opened_letters(log: RecordLog, group: ProjectionGroup) -> Iterator[DeadLetters | None]:
    """Where a group's bad records go, None for a group that sends none; InvalidDefinition for a log without topics."""
    with ExitStack() as opened:
        sends = group.bad_records == "dead-letter"
        yield opened.enter_context(log.dead_letters(group.topics, group=group.name)) if sends else None


@dataclass
class BatchApplier:
    """Applies ranges of one run; ``letters`` is where bad records go, None for a group that sends none.

    ``patience`` is how many seconds an unknown schema id is waited for: a schema and its first event travel by two
    topics. Records that are ``known`` to be in batches that cannot be unpacked, or to be forgotten by the generation
    that serves, are set aside without a look.
    """

    batches: LiveBatches
    letters: DeadLetters | None
    patience: float
    known: Callable[[OffsetRange], SetAside] = lambda offsets: SetAside.nothing()

    def __post_init__(self) -> None:
        self._given_up: set[int] = set()
        self._settled: Offsets = {}

    def apply(self, offsets: OffsetRange) -> BatchReport:
        """Carry a range into the views; raises what the group does not tolerate, and then nothing is applied."""
        begun = time.perf_counter()
        aside = self._sent(self.known(offsets))
        for left in reversed(range(_ROUNDS)):
            try:
                report = self.batches.without(aside).apply(offsets)
            except UndecodableRecord as error:
                if not left:
                    raise
                if not (isinstance(error, UnknownSchemaId) and self._learns(error, offsets)):
                    aside |= self._bad(offsets, aside, error)
            else:
                if aside:
                    report.set_aside = dict(Counter(report.set_aside) + Counter(aside.counts()))
                    report.seconds["set aside"] = time.perf_counter() - begun - report.total_seconds
                return report
        raise AssertionError("the last round returns or raises")

    def _learns(self, unknown: UnknownSchemaId, offsets: OffsetRange) -> bool:
        """Wait for a schema, unless it was waited for; returns whether it is one more than the batches know."""
        known, until = self.batches.reduction.registry, time.monotonic() + self.patience
        hopeless = unknown.schema_id in known or unknown.schema_id in self._given_up or self._is_settled(offsets)
        while unknown.schema_id not in (fresh := self._schemas()) and not hopeless and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        if fresh.keys() != known.keys():
            self.batches = self.batches.with_schemas(fresh)
        if unknown.schema_id in fresh and unknown.schema_id not in known:
            log.info("schema learnt", id=unknown.schema_id, group=self.batches.group.name)
            return True
        # Given up with it is any unknown id that has come by now: else many ids, as in garbage, would cost a wait each.
        self._given_up.add(unknown.schema_id)
        self._settled = self.batches.log.end_offsets(list(self.batches.group.inputs))
        return False

    def _schemas(self) -> Mapping[int, RegisteredSchema]:
        return self.batches.environment.log.schemas(self.batches.group.avro_changelogs)

    def _is_settled(self, offsets: OffsetRange) -> bool:
        """Whether all of a range had been written when a schema was last waited for."""
        reached = (
            self._settled.get(t, {}).get(p, 0) >= o for t, parts in offsets.end.items() for p, o in parts.items()
        )
        return bool(self._settled) and all(reached)

    def _bad(self, offsets: OffsetRange, aside: SetAside, error: UndecodableRecord) -> SetAside:
        """The records to set aside for an error, dead letters by now; raises it where nothing is to be."""
        group = self.batches.group
        if group.bad_records == "fail":
            raise error
        bad = self._find_bad(offsets, aside, error)
        if not bad:
            raise error
        log.warning("records set aside", group=group.name, strategy=group.bad_records, **bad.counts())
        return self._sent(bad)

    def _sent(self, aside: SetAside) -> SetAside:
        bad = aside.but(FORGOTTEN)
        if bad and self.letters is not None:
            self.letters.send(bad, attempts=1)
        return aside

    def _find_bad(self, offsets: OffsetRange, aside: SetAside, error: UndecodableRecord) -> SetAside:
        if not isinstance(error, RecordNotUnpacked):
            try:
                with described(f"projection group {self.batches.group.name}"):
                    return self._judged(offsets, aside, error)
            except RecordNotUnpacked:
                pass  # the executors had come to a bad record first
        unreadable = [not_unpacked_in(self.batches.log, piece) for piece in around(offsets, aside)]
        return functools.reduce(operator.or_, unreadable)

    def _judged(self, offsets: OffsetRange, aside: SetAside, error: UndecodableRecord) -> SetAside:
        batches, judge = self.batches, Judge(self.batches.reduction.registry, self.batches.environment.small)
        raw = read_records(batches.environment, batches.log, offsets, aside=aside, headed=batches.group.headed_topics)
        records = left_out(raw, aside)
        if isinstance(error, EventsMissing):
            asides = list(self._behind_gaps(records, judge))
        else:
            tables = [table for table in batches.group.tables.values() if table.topic in records]
            asides = [judge.faults(table, records[table.topic]) for table in tables]
        return functools.reduce(operator.or_, asides, SetAside.nothing())

    def _behind_gaps(self, records: Mapping[str, Rows], judge: Judge) -> Iterator[SetAside]:
        """The rows that the failed attempt staged show which streams lack a version."""
        for place in self.batches.tables:
            table = place.table
            if table.is_dense and table.topic in records:
                gaps = self.batches.streams_with_gaps(place)
                streams = pa.table({
                    "stream": pa.array([f"{table.category}-{key}" for key, _ in gaps], pa.string()),
                    "at": pa.array([at for _, at in gaps], pa.int64()),
                })  # fmt: skip
                yield judge.behind_gaps(records[table.topic], streams)
