"""Rebuild: a new generation of a group's views, computed from the whole log while another one serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

from projections.declaring.group import ProjectionGroup
from projections.environment import Environment
from projections.errors import KeyNotUnique, NotComparable, OffsetsLost, UndecodableRecord, UnsupportedValue
from projections.lifecycle.building import Build, Builder, begin
from projections.lifecycle.cutover import CatchUp, ViewComparison, compare, switch_to
from projections.lifecycle.progress import OnProgress, ProgressMeter
from projections.logs.offsets import Offsets
from projections.outputs.publishing import prepare_topics
from projections.spark.reading.records import whole_log
from projections.spark.views.view_functions import view_columns
from projections.stores.generations import rebuilding, refuse_changed
from projections.stores.runs import SERVING

log = structlog.get_logger()

_BULK: Final = ("plan", "tables", "chunks", "views", "index")
# The same offsets would fail again, and others need not: there is nothing to go on with.
_IN_THE_LOG: Final = (UndecodableRecord, KeyNotUnique, UnsupportedValue, OffsetsLost)


@dataclass
class RebuildReport:
    """What a rebuild did.

    Attributes:
        generation: The number of the new generation.
        records: The records that were read.
        rows: The rows by table and view.
        seconds: The seconds by step.
        resumed: It went on from a killed rebuild.
        serves: The new generation serves.
        withheld: Rows of an unchanged definition differ from the serving ones, and the cut-over was not requested.
        comparison: The comparison by view, None if there was nothing to compare with.
        not_compared: Why generations were not compared.

    Examples:
        >>> report = rebuild(environment, shop_views)
        >>> report.serves, report.rows["orders_by_region"]
        (True, 200)
    """

    generation: int
    records: int
    rows: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    resumed: bool = False
    serves: bool = False
    withheld: bool = False
    comparison: Mapping[str, ViewComparison] | None = None
    not_compared: str | None = None

    @property
    def differs(self) -> bool:
        """Whether a row differs from the serving generation's."""
        return any(not view.equal for view in (self.comparison or {}).values())

    @property
    def total_seconds(self) -> float:
        """All steps together."""
        return sum(self.seconds.values())

    @property
    def records_per_second(self) -> float:
        """Records over the time in which they were read, tables and views loaded and indexed."""
        seconds = sum(self.seconds.get(step, 0.0) for step in _BULK)
        return self.records / seconds if seconds else 0.0


def rebuild(
    environment: Environment,
    group: ProjectionGroup,
    *,
    cut_over: bool | None = None,
    on_progress: OnProgress = lambda progress: None,
) -> RebuildReport:
    """Build a new generation up to the ends of the topics, compare it with the serving one, and let it serve.

    The serving run goes on meanwhile. A killed rebuild goes on from what it had committed, if the definition is the
    same.

    Args:
        environment: The connections.
        group: The group.
        cut_over: Let the new generation serve even if rows differ. With False, `diff` and `cut_over` are left to you.
            By default, it does not serve if rows of an unchanged definition differ: either generation may be wrong.
        on_progress: Is called when a step begins, and twice a second from another thread while records are read.

    Returns:
        `generation`, `records`, `rows` by table and view, `seconds` by step, `serves`, `withheld` and `comparison`.

    Raises:
        RunAlreadyActive: Another rebuild works on the group.
        DefinitionChanged: Another definition has served under the same version.
        ProjectionError: The rebuild would end before what is served.

    Examples:
        >>> rebuild(environment, shop_views).serves
        True
    """
    with rebuilding(environment.store, group.name):
        return _Rebuild(environment, group, ProgressMeter(on_progress)).run(cut_over=cut_over)


class _Rebuild:
    def __init__(self, environment: Environment, group: ProjectionGroup, meter: ProgressMeter) -> None:
        self._environment, self._store = environment, environment.store
        self._group = group
        self._meter = meter

    def run(self, *, cut_over: bool | None) -> RebuildReport:
        with self._meter.step("plan"):
            build, ends = self._begin()
        builder = Builder(self._environment, self._group, build, self._meter)
        with self._of_no_use_where_the_log_is_wrong(build):
            builder.run()
        rows = {**builder.state.tables, **builder.state.views}
        report = RebuildReport(build.run.generation, builder.records, rows, resumed=build.resumed)
        with CatchUp(self._environment, self._group, build.run) as catch_up:
            self._compare(catch_up, build, report)
            report.withheld = cut_over is None and report.differs and self._serves_unchanged()
            if cut_over is not False and not report.withheld:
                with self._meter.step("serve"):
                    switch_to(self._environment, self._group, catch_up, build.layout, at_least=ends)
                report.serves = True
        report.seconds = self._meter.seconds
        return report

    def _begin(self) -> tuple[Build, Offsets]:
        """The build, and the ends of the topics now, which a build that is resumed may not know yet."""
        columns = view_columns(self._environment.spark, self._group)
        refuse_changed(self._store, self._group, columns)
        prepare_topics(self._environment, self._group)
        served = next((state.progress for state in self._store.states(self._group.name, SERVING)), {})
        whole = whole_log(self._environment, self._group, served=served)
        return begin(self._environment, self._group, columns, whole), whole.end

    def _serves_unchanged(self) -> bool:
        """Whether the serving generation was built by this definition: then its rows should be the same."""
        return self._store.serving_state(self._group.name).run.fingerprint == self._group.fingerprint()

    def _compare(self, catch_up: CatchUp, build: Build, report: RebuildReport) -> None:
        if not self._store.states(self._group.name, SERVING):
            return
        with self._meter.step("compare"):
            try:
                report.comparison = compare(self._environment, self._group, catch_up, build.layout)
            except NotComparable as cause:
                report.not_compared = cause.message
                log.info("not compared", group=self._group.name, cause=cause.message)

    @contextmanager
    def _of_no_use_where_the_log_is_wrong(self, build: Build) -> Iterator[None]:
        try:
            yield
        except _IN_THE_LOG:
            self._store.drop(build.run)
            raise
