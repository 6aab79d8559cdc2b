"""All families of metrics, and where each is served: what the documentation's table and the tests are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cdc
import projections
from factfold import on_demand

if TYPE_CHECKING:
    from eventstore.metrics.families import Family, Metrics


def served_at() -> dict[str, type[Metrics]]:
    """The metrics of each command."""
    # Both need the extra metrics.
    from factfold.watching.metrics import CompareMetrics, VerifyMetrics, WatchMetrics

    return {
        "projections run": projections.RunMetrics,
        "branches run": projections.RouterMetrics,
        "subscriptions run": on_demand.SubscriptionMetrics,
        "processes run": on_demand.ProcessMetrics,
        "relay run": on_demand.RelayMetrics,
        "archive run": projections.ArchiveMetrics,
        "cdc supervise": cdc.ConnectorMetrics,
        "watch run": WatchMetrics,
        "projections verify": VerifyMetrics,
        "cdc compare": CompareMetrics,
    }


def families() -> dict[str, Family]:
    """All families by name."""
    return {family.name: family for metrics in served_at().values() for family in metrics.families}


def table() -> str:
    """The table of metrics for the documentation, by command."""
    lines = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    lines += ["| **every command that runs** | | | |", *map(_row, on_demand.RUNNER)]
    for command, metrics in served_at().items():
        lines += [
            f"| **`factfold {command}`** | | | |",
            *(_row(one) for one in metrics.families if one not in on_demand.RUNNER),
        ]
    return "\n".join(lines)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"


if __name__ == "__main__":
    print(table())  # noqa: T201
