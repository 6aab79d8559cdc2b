"""Metrics of commands that run for long: one pair of options, and one way to serve what they count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from factfold import on_demand

if TYPE_CHECKING:
    from eventstore.metrics import RunnerMetrics

    Made = TypeVar("Made", bound=RunnerMetrics)

LOCAL: Final = "127.0.0.1"

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port", envvar="FACTFOLD_METRICS_PORT", min=0, max=65535,
        help="Serve Prometheus metrics at this port, path /metrics.",
    ),
]  # fmt: skip
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", envvar="FACTFOLD_METRICS_HOST", help="The address that metrics are served at.")
]


MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        help="Write the result as Prometheus metrics to this file, for node_exporter's textfile collector.",
    ),
]


@contextmanager
def served_metrics(
    make: Callable[[], Made], port: int | None, host: str, *, look: Callable[[Made], None] | None = None
) -> Iterator[Made | None]:
    """Make a runner's metrics and serve them for the block, if a port is given. Else give None and import nothing.

    `look` is called every 15 seconds for what the runner does not learn by itself.
    """
    if port is None:
        yield None
        return

    metrics = make()
    with on_demand.serve_metrics(metrics, port=port, host=host):
        if look is None:
            yield metrics
            return
        with on_demand.looking(metrics, lambda: look(metrics)):
            yield metrics
