"""Topics folded into tables, tables joined into views: declared here, run by Spark.

Names are loaded when first used: importing this package starts nothing and loads neither Spark nor a database driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from projections.archive import ArchivedLog
    from projections.branching import Branches, branches
    from projections.comparing import ViewComparison, diff
    from projections.cutover import cut_over, rollback
    from projections.environment import Environment
    from projections.errors import NoServingGeneration, NotYetApplied, ProjectionError
    from projections.follower import Follower
    from projections.group import ProjectionGroup
    from projections.metrics import RunMetrics, serve_metrics
    from projections.predicates import Predicate, field, of_type
    from projections.rebuild_progress import RebuildProgress
    from projections.rebuilding import RebuildReport, rebuild
    from projections.router import (
        BranchesStatus,
        Router,
        RouterOptions,
        branch_counts,
        branches_status,
        open_router,
    )
    from projections.runner import Runner, RunnerOptions, open_runner
    from projections.setters import on
    from projections.spark.archive.archiver import Archiver, open_archiver
    from projections.spark.archive.verifying import ArchiveVerdict, release_topic, verify_archive
    from projections.spark.as_of import as_of
    from projections.spark.lakehouse.reading import read_view, read_views
    from projections.spark_settings import SparkSettings
    from projections.sql_views import sql_view
    from projections.store_branches import branch_source
    from projections.streams import Stream
    from projections.tables import Table
    from projections.verifying import ViewVerdict, verify
    from projections.view_topics import ViewTopic
    from projections.views import View, view
    from projections.waiting import AppliedVersions

__all__ = [
    "AppliedVersions",
    "ArchiveVerdict",
    "ArchivedLog",
    "Archiver",
    "Branches",
    "BranchesStatus",
    "Environment",
    "Follower",
    "NoServingGeneration",
    "NotYetApplied",
    "Predicate",
    "ProjectionError",
    "ProjectionGroup",
    "RebuildProgress",
    "RebuildReport",
    "Router",
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
    "branch_source",
    "branches",
    "branches_status",
    "cut_over",
    "diff",
    "field",
    "of_type",
    "on",
    "open_archiver",
    "open_router",
    "open_runner",
    "read_view",
    "read_views",
    "rebuild",
    "release_topic",
    "rollback",
    "serve_metrics",
    "sql_view",
    "verify",
    "verify_archive",
    "view",
]

_HOMES = {
    "archive": ("ArchivedLog",),
    "spark.archive.archiver": ("Archiver", "open_archiver"),
    "spark.archive.verifying": ("ArchiveVerdict", "release_topic", "verify_archive"),
    "store_branches": ("branch_source",),
    "branching": ("Branches", "branches"),
    "comparing": ("ViewComparison", "diff"),
    "cutover": ("cut_over", "rollback"),
    "environment": ("Environment",),
    "errors": ("NoServingGeneration", "NotYetApplied", "ProjectionError"),
    "follower": ("Follower",),
    "group": ("ProjectionGroup",),
    "metrics": ("RunMetrics", "serve_metrics"),
    "predicates": ("Predicate", "field", "of_type"),
    "rebuild_progress": ("RebuildProgress",),
    "rebuilding": ("RebuildReport", "rebuild"),
    "router": ("BranchesStatus", "Router", "RouterOptions", "branch_counts", "branches_status", "open_router"),
    "runner": ("Runner", "RunnerOptions", "open_runner"),
    "setters": ("on",),
    "spark.as_of": ("as_of",),
    "spark.lakehouse.reading": ("read_view", "read_views"),
    "spark_settings": ("SparkSettings",),
    "sql_views": ("sql_view",),
    "streams": ("Stream",),
    "tables": ("Table",),
    "verifying": ("ViewVerdict", "verify"),
    "view_topics": ("ViewTopic",),
    "views": ("View", "view"),
    "waiting": ("AppliedVersions",),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
