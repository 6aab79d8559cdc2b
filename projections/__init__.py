"""Topics folded into tables, tables joined into views: declared here, run by Spark.

Names are loaded when first used: importing this package starts nothing and loads neither Spark nor a database driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventstore.extras import import_with_extras

if TYPE_CHECKING:
    from projections.batch_size import BatchSize
    from projections.branching.branches import Branches, branches
    from projections.branching.letters import branch_letters
    from projections.branching.metrics import RouterMetrics
    from projections.branching.router import (
        BranchesStatus,
        Router,
        RouterOptions,
        branch_counts,
        branches_status,
        open_router,
    )
    from projections.branching.store_branches import branch_source
    from projections.declaring.setters import on
    from projections.environment import Environment
    from projections.errors import NoServingGeneration, NotYetApplied, ProjectionError
    from projections.group import ProjectionGroup
    from projections.logs.archive import ArchivedLog
    from projections.outputs.finals import FinalResults
    from projections.outputs.view_topics import FinalTopic, ViewTopic
    from projections.predicates import Predicate, field, of_type
    from projections.rebuilding.comparing import ViewComparison, diff
    from projections.rebuilding.cutover import cut_over, rollback
    from projections.rebuilding.progress import RebuildProgress
    from projections.rebuilding.rebuild import RebuildReport, rebuild
    from projections.rebuilding.verifying import ViewVerdict, verify
    from projections.running.follower import Follower
    from projections.running.metrics import RunMetrics
    from projections.running.restarts import Restarts
    from projections.running.runner import Runner, RunnerOptions, open_runner
    from projections.running.waiting import AppliedVersions
    from projections.spark.archive.archiver import Archiver, open_archiver
    from projections.spark.archive.metrics import ArchiveMetrics
    from projections.spark.archive.verifying import ArchiveVerdict, release_topic, verify_archive
    from projections.spark.lakehouse.reading import read_view, read_views
    from projections.spark.live.incremental import BatchReport
    from projections.spark.session import open_session
    from projections.spark.timing.joins import join_as_of, join_within
    from projections.spark.timing.matching import match_pattern
    from projections.spark.timing.sliding import sliding
    from projections.spark.views.as_of import as_of
    from projections.spark_settings import SparkSettings
    from projections.sql_views import sql_view
    from projections.streams import Stream
    from projections.tables import Table
    from projections.tablestore.compared import ComparedGroup
    from projections.tablestore.histories import rows_as_of
    from projections.tablestore.letters import set_aside_letters
    from projections.timing.histories import history
    from projections.timing.operands import previous, rows_of
    from projections.timing.patterns import Pattern, label
    from projections.timing.promises import Reach, Retain
    from projections.timing.windows import cumulative, hopping, session, tumbling, windowed
    from projections.views import View, view

__all__ = [
    "AppliedVersions",
    "ArchiveMetrics",
    "ArchiveVerdict",
    "ArchivedLog",
    "Archiver",
    "BatchReport",
    "BatchSize",
    "Branches",
    "BranchesStatus",
    "ComparedGroup",
    "Environment",
    "FinalResults",
    "FinalTopic",
    "Follower",
    "NoServingGeneration",
    "NotYetApplied",
    "Pattern",
    "Predicate",
    "ProjectionError",
    "ProjectionGroup",
    "Reach",
    "RebuildProgress",
    "RebuildReport",
    "Restarts",
    "Retain",
    "Router",
    "RouterMetrics",
    "RouterOptions",
    "RunMetrics",
    "Runner",
    "RunnerOptions",
    "SparkSettings",
    "Stream",
    "Table",
    "View",
    "ViewComparison",
    "ViewTopic",
    "ViewVerdict",
    "as_of",
    "branch_counts",
    "branch_letters",
    "branch_source",
    "branches",
    "branches_status",
    "cumulative",
    "cut_over",
    "diff",
    "field",
    "history",
    "hopping",
    "join_as_of",
    "join_within",
    "label",
    "match_pattern",
    "of_type",
    "on",
    "open_archiver",
    "open_router",
    "open_runner",
    "open_session",
    "previous",
    "read_view",
    "read_views",
    "rebuild",
    "release_topic",
    "rollback",
    "rows_as_of",
    "rows_of",
    "session",
    "set_aside_letters",
    "sliding",
    "sql_view",
    "tumbling",
    "verify",
    "verify_archive",
    "view",
    "windowed",
]

_HOMES = {
    "batch_size": ("BatchSize",),
    "branching.branches": ("Branches", "branches"),
    "branching.router": (
        "BranchesStatus",
        "Router",
        "RouterOptions",
        "branch_counts",
        "branches_status",
        "open_router",
    ),
    "branching.letters": ("branch_letters",),
    "branching.store_branches": ("branch_source",),
    "declaring.setters": ("on",),
    "environment": ("Environment",),
    "errors": ("NoServingGeneration", "NotYetApplied", "ProjectionError"),
    "group": ("ProjectionGroup",),
    "logs.archive": ("ArchivedLog",),
    "outputs.finals": ("FinalResults",),
    "outputs.view_topics": ("FinalTopic", "ViewTopic"),
    "predicates": ("Predicate", "field", "of_type"),
    "rebuilding.comparing": ("ViewComparison", "diff"),
    "rebuilding.cutover": ("cut_over", "rollback"),
    "rebuilding.progress": ("RebuildProgress",),
    "rebuilding.rebuild": ("RebuildReport", "rebuild"),
    "rebuilding.verifying": ("ViewVerdict", "verify"),
    "running.follower": ("Follower",),
    "running.metrics": ("RunMetrics",),
    "branching.metrics": ("RouterMetrics",),
    "spark.archive.metrics": ("ArchiveMetrics",),
    "running.restarts": ("Restarts",),
    "running.runner": ("Runner", "RunnerOptions", "open_runner"),
    "running.waiting": ("AppliedVersions",),
    "spark.archive.archiver": ("Archiver", "open_archiver"),
    "spark.archive.verifying": ("ArchiveVerdict", "release_topic", "verify_archive"),
    "spark.lakehouse.reading": ("read_view", "read_views"),
    "spark.live.incremental": ("BatchReport",),
    "spark.session": ("open_session",),
    "spark.timing.joins": ("join_as_of", "join_within"),
    "spark.timing.matching": ("match_pattern",),
    "spark.timing.sliding": ("sliding",),
    "spark.views.as_of": ("as_of",),
    "spark_settings": ("SparkSettings",),
    "sql_views": ("sql_view",),
    "streams": ("Stream",),
    "tables": ("Table",),
    "tablestore.compared": ("ComparedGroup",),
    "tablestore.histories": ("rows_as_of",),
    "tablestore.letters": ("set_aside_letters",),
    "timing.histories": ("history",),
    "timing.promises": ("Reach", "Retain"),
    "timing.windows": ("cumulative", "hopping", "session", "tumbling", "windowed"),
    "timing.operands": ("previous", "rows_of"),
    "timing.patterns": ("Pattern", "label"),
    "views": ("View", "view"),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_with_extras(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
