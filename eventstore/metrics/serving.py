"""Metrics over HTTP, and looks at what a runner does not learn by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import TIMEOUT_MAX, Event, Thread
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import ProcessCollector, start_http_server, write_to_textfile

from eventstore.errors import FactfoldError

if TYPE_CHECKING:
    from eventstore.metrics.families import Metrics, RunnerMetrics

LOOK_SECONDS: Final = 15.0  # as often as Prometheus scrapes unless it is configured otherwise

log = structlog.get_logger(__name__)


@contextmanager
def serve_metrics(metrics: Metrics, *, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer GET /metrics for the block, from a thread of its own.

    Args:
        metrics: The metrics of a runner. CPU time and memory of the process are served with them.
        port: The port, 0 for a free one.
        host: The address that it listens on.

    Returns:
        The port.

    Raises:
        FactfoldError: The address cannot be listened on.

    Examples:
        >>> with serve_metrics(metrics, port=9464):
        ...     run_subscription(review, stop=stop, engine=engine, metrics=metrics)
    """
    try:
        server, thread = start_http_server(port, host, registry=metrics.registry)
    except OSError as error:
        raise FactfoldError(
            f"metrics cannot be served: {error.strerror}",
            remedy="choose another --metrics-port, or omit it",
            place=f"{host}:{port}",
            code="port-taken",
        ) from error
    process = ProcessCollector(registry=metrics.registry)
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        metrics.registry.unregister(process)


def write_metrics(metrics: Metrics, path: str) -> None:
    """Write metrics to a file, in one step: what reads it finds the former content or the new one.

    The file is for the textfile collector of node_exporter, or to be sent to a Pushgateway.

    Args:
        metrics: The metrics.
        path: The file, with the suffix .prom for node_exporter.

    Examples:
        >>> write_metrics(metrics, "/var/lib/node_exporter/shop.prom")
    """
    write_to_textfile(path, metrics.registry)


@contextmanager
def refreshing(metrics: RunnerMetrics, look: Callable[[], None], *, every: float = LOOK_SECONDS) -> Iterator[None]:
    """Look at once and then every so many seconds during the block, in a thread of its own.

    A look that fails is counted, and logged if it is the first in a row.

    Args:
        metrics: The metrics that count failed looks.
        look: Notes current figures in the metrics, such as the lag.
        every: Seconds between two looks.

    Examples:
        >>> with serve_metrics(metrics, port=9464), refreshing(metrics, lambda: metrics.look(review, Settings())):
        ...     run_subscription(review, stop=stop, engine=engine, metrics=metrics)
    """
    stop = Event()
    thread = Thread(target=_look, args=(metrics, look, every, stop), name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LOOK_SECONDS)


def _look(metrics: RunnerMetrics, look: Callable[[], None], every: float, stop: Event) -> None:
    is_first = True
    while not stop.is_set():
        try:
            look()
            is_first = True
        except Exception as error:
            metrics.look_failed()
            if is_first:
                cause = error.message if isinstance(error, FactfoldError) else type(error).__name__
                log.warning("metrics not refreshed", cause=cause, retry_in=every)
            is_first = False
        stop.wait(min(every, TIMEOUT_MAX))
