"""All families of metrics, and where each is served: what the documentation's table and the tests are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eventstore.metrics import Family, Metrics


def served_at() -> dict[str, type[Metrics]]:
    """The metrics of each command."""
    from cdc.operating.connector_metrics import ConnectorMetrics
    from eventstore.metrics import ProcessMetrics, RelayMetrics, SubscriptionMetrics
    from factfold.watching.metrics import WatchMetrics
    from factfold.watching.results import CompareMetrics, VerifyMetrics
    from projections.branching.metrics import RouterMetrics
    from projections.lifecycle.metrics import RunMetrics
    from projections.spark.archive.metrics import ArchiveMetrics

    return {
        "projections run": RunMetrics,
        "branches run": RouterMetrics,
        "subscriptions run": SubscriptionMetrics,
        "processes run": ProcessMetrics,
        "relay run": RelayMetrics,
        "archive run": ArchiveMetrics,
        "cdc supervise": ConnectorMetrics,
        "watch run": WatchMetrics,
        "projections verify": VerifyMetrics,
        "cdc compare": CompareMetrics,
    }


def families() -> dict[str, Family]:
    """All families by name."""
    return {family.name: family for metrics in served_at().values() for family in metrics.families}


def table() -> str:
    """The table of metrics for the documentation, by command."""
    from eventstore.metrics.families import RUNNER

    lines = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    lines += ["| **every command that runs** | | | |", *map(_row, RUNNER)]
    for command, metrics in served_at().items():
        lines += [f"| **`factfold {command}`** | | | |", *(_row(one) for one in metrics.families if one not in RUNNER)]
    return "\n".join(lines)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"


if __name__ == "__main__":
    print(table())  # noqa: T201
