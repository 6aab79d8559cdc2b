"""Rebuild: a new generation of a group's views, computed from the whole log beside the one that serves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from projections.boundaries import open_boundaries
from projections.environment import Environment
from projections.errors import EndNotKnown, HistoryNotKept, OffsetsLost, keys_missing
from projections.group import ERASURES, ProjectionGroup
from projections.log import OffsetRange, Offsets
from projections.planner import plan
from projections.set_aside import SetAside
from projections.spark.bulk import WholeTables, load_state, whole_tables
from projections.spark.exchange import in_table_order, write
from projections.spark.failures import told_plainly
from projections.spark.log_faults import bad_records
from projections.spark.view_functions import view_columns
from projections.tablestore.aside import note_set_aside
from projections.tablestore.layout import GenerationLayout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Announce = Callable[[str], None]


@dataclass
class RebuildReport:
    """What a rebuild did: records read, rows by table and view, seconds by step."""

    generation: int
    records: int
    rows: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total_seconds(self) -> float:
        """All steps together."""
        return sum(self.seconds.values())

    @property
    def records_per_second(self) -> float:
        """Records read over the whole time, tables and views loaded and indexed."""
        return self.records / self.total_seconds if self.total_seconds else 0.0


def rebuild(
    environment: Environment, group: ProjectionGroup, *, announce: Announce = lambda step: None
) -> RebuildReport:
    """Build a new generation up to the ends of the topics and let it serve; the old one serves until then.

    ``announce`` is called with the name of each step as it begins. Raises RunAlreadyActive while a runner holds the
    group, EndNotKnown where it would end before what is served. An interrupted rebuild leaves nothing that is read, and
    the next one clears it away.
    """
    with environment.store.exclusive(group.name):
        return _Rebuild(environment, group, announce).run()


class _Rebuild:
    def __init__(self, environment: Environment, group: ProjectionGroup, announce: Announce) -> None:
        self._environment = environment
        self._group = group
        self._announce = announce
        self._report = RebuildReport(0, 0)

    def run(self) -> RebuildReport:
        store, group = self._environment.store, self._group
        with self._step("plan"):
            columns = view_columns(self._environment.spark, group)
            for view in group.views:
                plan(view)
            offsets = whole_log(self._environment, group, served=store.served(group))
            run, layout = store.begin_generation(group, columns)
        self._report.generation, self._report.records = run.generation, offsets.without(ERASURES).records
        self._load(layout, offsets)
        with self._step("index"):
            store.index_generation(group, layout)
        with self._step("serve"):
            store.serve(group, run, layout, offsets.end)
            store.discard_retired(group.name)
        return self._report

    def _load(self, layout: GenerationLayout, offsets: OffsetRange) -> None:
        registry = self._environment.log.schemas(self._group.avro_changelogs)
        aside = self._set_aside(layout, bad_records(self._environment, self._group, offsets, registry))
        reduced = whole_tables(self._environment, self._group, offsets, registry, aside=aside)
        with told_plainly(f"projection group {self._group.name}"), reduced as tables:
            with self._step("tables"):
                self._load_tables(layout, tables.frames, offsets)
            with self._step("views"):
                self._load_views(layout, tables)

    def _set_aside(self, layout: GenerationLayout, aside: SetAside) -> SetAside:
        """Keep what the new generation is built without."""
        if aside and self._group.bad_records == "dead-letter":
            with self._environment.log.dead_letters(self._group.topics, group=self._group.name) as letters:
                letters.send(aside, attempts=1)
        with self._environment.store.transaction() as connection:
            note_set_aside(connection, layout, aside)
        return aside

    def _load_tables(self, layout: GenerationLayout, frames: Mapping[str, DataFrame], offsets: OffsetRange) -> None:
        """Load every table; side by side, so that one's COPY fills the pauses of another's fold."""

        def load(name: str) -> int:
            topic = layout.tables[name].table.topic
            return load_state(self._environment, frames[name], layout.tables[name], rows=offsets.only(topic).records)

        with ThreadPoolExecutor(max_workers=len(frames)) as pool:
            self._report.rows.update(zip(frames, pool.map(load, frames), strict=True))

    def _load_views(self, layout: GenerationLayout, tables: WholeTables) -> None:
        for view in self._group.views:
            target = layout.views[view.name]
            result = in_table_order(tables.apply(view), target.columns)
            rows = self._report.rows[view.root]
            store = self._environment.store
            self._report.rows[view.name] = write(result, store.target(target.view), rows=rows, marked=False)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self._announce(name)
        begun = time.perf_counter()
        yield
        self._report.seconds[name] = time.perf_counter() - begun


def whole_log(environment: Environment, group: ProjectionGroup, *, served: Offsets | None = None) -> OffsetRange:
    """Every committed record of the group's topics; with ``transactions``, up to the last that is known to have ended.

    Raises TopicMissing, BrokerUnreachable, OffsetsLost, HistoryNotKept or KeysMissing, and EndNotKnown where that is
    before what is ``served``.
    """
    require_inputs(environment, group)
    with environment.log.open() as reader:
        topics = list(group.inputs)
        beginning, ends = reader.beginning_offsets(topics), reader.end_offsets(topics)
        if group.transactions:
            with open_boundaries(environment.log, group) as boundaries:
                whole = boundaries.latest(beginning, ends)
            require_served(served or {}, whole, ends, group=group.name)
            ends = whole
        return from_the_beginning(beginning, ends)


def require_served(served: Offsets, whole: Offsets, ends: Offsets, *, group: str) -> None:
    """Raise EndNotKnown where whole transactions end before what is served, in a topic that still holds it.

    One that ends before is another: it was made anew.
    """
    for topic, parts in whole.items():
        for partition, end in parts.items():
            if end < served.get(topic, {}).get(partition, 0) <= ends[topic][partition]:
                raise EndNotKnown(
                    f"group {group!r} serves {served[topic][partition]} offsets, and transactions of the source are "
                    f"known to have ended up to {end} only",
                    remedy="wait for the transaction that is open; where its marks were removed or switched off, for "
                    "the next one, or leave ProjectionGroup(transactions=…) away",
                    place=f"topic {topic}, partition {partition}",
                )


def require_inputs(environment: Environment, group: ProjectionGroup) -> None:
    """Raise KeysMissing where personal columns cannot be opened, HistoryNotKept where a topic of versions is compacted.

    A later rebuild would find fewer versions.
    """
    if group.personal and environment.keys is None:
        raise keys_missing(place=f"projection group {group.name}")
    for topic, policy in environment.log.cleanup_policies(group.history_topics).items():
        if "compact" in policy:
            raise HistoryNotKept(
                f"versions are read from the topic, and it has cleanup.policy={policy}: older changes will go",
                remedy="capture the table with PostgresSource(history=(…)), or set cleanup.policy=delete and"
                " retention.ms=-1 on the topic before it is compacted",
                place=f"topic {topic}",
            )


def from_the_beginning(beginning: Offsets, ends: Offsets) -> OffsetRange:
    """The range up to the given ends, when the topics still begin where they began; else OffsetsLost.

    Compaction leaves a topic's beginning at 0; only retention by time or size, or a deletion of records, moves it.
    """
    for topic, offsets in beginning.items():
        for partition, first in offsets.items():
            if first > 0:
                raise OffsetsLost(
                    f"the topic no longer begins at its beginning: {first} offsets have been removed",
                    remedy="publish it again; event and changelog topics are compacted and kept without limit",
                    place=f"topic {topic}, partition {partition}",
                )
    return OffsetRange(beginning, ends)
