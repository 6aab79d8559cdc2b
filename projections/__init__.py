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
    "environment": ("Environment",),
    "errors": ("NoServingGeneration", "ProjectionError"),
    "group": ("ProjectionGroup",),
    "rebuilding": ("RebuildReport", "rebuild"),
    "runner": ("Runner", "open_runner"),
    "tables": ("Table", "on"),
    "verifying": ("ViewVerdict", "verify"),
    "views": ("View", "view"),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
