"""Verify: a live view must be what a recomputation from the whole log gives at the same offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projections.declaring.group import ERASURES, ProjectionGroup
from projections.environment import Environment
from projections.errors import ProjectionError
from projections.lifecycle.recomputing import recomputed
from projections.spark.reading.records import require_inputs
from projections.spark.views.view_functions import view_columns
from projections.stores.comparison import Difference, DifferingRow
from projections.stores.locks import VERIFIER
from projections.stores.runs import Progress


@dataclass(frozen=True)
class ViewVerdict:
    """A view compared with its recomputation. Partial aggregates are compared too, which digests leave out.

    Attributes:
        rows: The rows of the live view.
        recomputed_rows: The rows of the recomputed one.
        digest: The digest of the live rows, None if a column is a floating-point number.
        recomputed_digest: The digest of the recomputed rows.
        differing_keys: The keys of some differing rows, tuples for keys of several columns.
        differing: Some differing rows: ``one`` is the live view's, ``other`` the recomputed one.

    Examples:
        >>> verdict = verify(environment, shop_views)["orders_by_region"]
        >>> verdict.equal, verdict.differing_keys
        (True, ())
    """

    rows: int
    recomputed_rows: int
    digest: str | None
    recomputed_digest: str | None
    differing_keys: tuple[Any, ...]
    differing: tuple[DifferingRow, ...]

    @property
    def equal(self) -> bool:
        """Whether every row agrees."""
        counts = self.rows == self.recomputed_rows
        return counts and self.digest == self.recomputed_digest and not self.differing


def verify(environment: Environment, group: ProjectionGroup) -> Mapping[str, ViewVerdict]:
    """Compare every view of the group with its recomputation at the run's own progress.

    The views and the progress are copied in one snapshot, and the run goes on meanwhile. Rows are compared in the
    database.

    Raises:
        ProjectionError: A person was erased, and the views do not show it yet.
        RunAlreadyActive: Another process verifies the group. The errors of `rebuild` are raised too.

    Examples:
        >>> all(verdict.equal for verdict in verify(environment, shop_views).values())
        True
    """
    store = environment.store
    require_inputs(environment, group)
    run, layout = store.serving(group, view_columns(environment.spark, group))
    with store.exclusive(group.name, role=VERIFIER), environment.keeper.copies(run, layout) as live:
        progress = live.take()
        with recomputed(environment, group, progress, aside=live.set_aside(progress)) as again:
            for view in layout.views.values():
                again.load(again.view(view.name), view.recomputed_copy)
            verdicts = {name: _verdict(live.against_recomputed(name)) for name in layout.views}
    _require_none_waiting(environment, group, progress, verdicts)
    return verdicts


def _require_none_waiting(
    environment: Environment, group: ProjectionGroup, progress: Progress, verdicts: Mapping[str, ViewVerdict]
) -> None:
    """A recomputation shows each erasure at once, a live view when its runner has come to it."""
    if environment.keys is None or not group.personal or all(verdict.equal for verdict in verdicts.values()):
        return
    if environment.keys.erasures() > progress.get(ERASURES, {}).get(0, 0):
        raise ProjectionError(
            "a person was erased, and the views do not show it yet",
            remedy="let the runner catch up, then verify again",
            place=f"projection group {group.name}",
            code="erasure-waiting",
        )


def _verdict(result: Difference) -> ViewVerdict:
    keys = tuple(_bare(row) for row in result.differing)
    one, other = result.one, result.other
    return ViewVerdict(one.count, other.count, one.digest, other.digest, keys, result.differing)


def _bare(row: DifferingRow) -> Any:
    values = tuple(row.key.values())
    return values[0] if len(values) == 1 else values
