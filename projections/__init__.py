"""Topics folded into tables, tables joined into views: declared here, run by Spark.

Names are loaded when first used: importing this package starts nothing and loads neither Spark nor a database driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from projections.environment import Environment
    from projections.errors import NoServingGeneration, ProjectionError
    from projections.group import ProjectionGroup
    from projections.rebuilding import RebuildReport, rebuild
    from projections.runner import Runner, open_runner
    from projections.tables import Table, on
    from projections.verifying import ViewVerdict, verify
    from projections.views import View, view

__all__ = [
    "Environment",
    "NoServingGeneration",
    "ProjectionError",
    "ProjectionGroup",
    "RebuildReport",
    "Runner",
    "Table",
    "View",
    "ViewVerdict",
    "on",
    "open_runner",
    "rebuild",
    "verify",
    "view",
]

_HOMES = {
    "Environment": "environment", "NoServingGeneration": "errors", "ProjectionError": "errors", "ProjectionGroup": "group", "RebuildReport": "rebuilding", "rebuild": "rebuilding",
    "Runner": "runner", "open_runner": "runner", "Table": "tables", "on": "tables", "ViewVerdict": "verifying",
    "verify": "verifying", "View": "views", "view": "views",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
