"""Commands that run for long: their logs, the signals that end them, restarts, metrics, spans and brokers."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import eventstore
from eventstore.errors import BrokerUnreachable
from factfold import on_demand
from factfold.cli.options import option, setting
from factfold.cli.show import escaped

if TYPE_CHECKING:
    from eventstore.metrics.families import RunnerMetrics

    Made = TypeVar("Made", bound=RunnerMetrics)

LOCAL: Final = "127.0.0.1"
_DEADLINE_SECONDS: Final = 3.0
_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)

MetricsPort = Annotated[
    int | None, setting("--metrics-port", "Serve Prometheus metrics at this port, path /metrics.", min=0, max=65535)
]
MetricsHost = Annotated[str, setting("--metrics-host", "The address that metrics are served at.")]
MetricsFile = Annotated[
    Path | None,
    option(
        "--metrics-file", "Write the result as Prometheus metrics to this file, for node_exporter's textfile collector."
    ),
]
RestartLimit = Annotated[
    int, setting("--restarts", "How often in a row a temporary failure leads to a new start.", min=0)
]
Tracing = Annotated[
    bool,
    setting(
        "--tracing/--no-tracing",
        "Open OpenTelemetry spans. The SDK is configured around the command, such as by opentelemetry-instrument.",
    ),
]


@dataclass(frozen=True)
class Served:
    """Where a command that runs for long serves metrics."""

    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = LOCAL

    @contextmanager
    def metrics(self, make: Callable[[], Made], look: Callable[[Made], None] | None = None) -> Iterator[Made | None]:
        """Make a runner's metrics and serve them for the block, if a port is given. Else give None and import nothing.

        `look` is called every 15 seconds for what the runner does not learn by itself.
        """
        if self.metrics_port is None:
            yield None
            return
        metrics = make()
        with on_demand.serve_metrics(metrics, port=self.metrics_port, host=self.metrics_host):
            if look is None:
                yield metrics
                return
            with on_demand.refreshing(metrics, lambda: look(metrics)):
                yield metrics


@dataclass(frozen=True)
class Running(Served):
    """How often a command starts again after a temporary failure, and where it serves metrics."""

    restarts: RestartLimit = 8


def spans_if(asked: bool) -> on_demand.Spans | None:
    """Spans by the tracer provider of the process, if they are asked for. Else None, and nothing is imported."""
    return on_demand.Spans() if asked else None


def stop_on_signal(stop: threading.Event | None = None) -> threading.Event:
    """Return an event that SIGINT and SIGTERM set.

    Spark takes SIGINT for itself when it starts: called again, with the event, after that, this takes it back.
    """
    stopped = stop or threading.Event()
    for number in _NUMBERS:
        signal.signal(number, lambda *_: stopped.set())
    return stopped


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let both signals end the process at once while it does what goes on by itself when it is started again."""
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def brokers_are_named() -> bool:
    """Say whether a setting names brokers; the default address alone says nothing."""
    return any(name in os.environ for name in ("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", "FACTFOLD_KAFKA"))


def reached_settings(*, without_kafka: str) -> eventstore.Settings:
    """Return the settings; BrokerUnreachable at once if none names a broker and the default address has none.

    Args:
        without_kafka: The end of the remedy: what the user may have meant.
    """
    settings = eventstore.Settings()
    if brokers_are_named():
        return settings
    try:
        with on_demand.OffsetReader(settings, deadline=_DEADLINE_SECONDS) as reader:
            reader.names()
    except BrokerUnreachable as error:
        raise BrokerUnreachable(
            f"no setting names a Kafka broker, and {settings.kafka.bootstrap_servers} has none",
            remedy="set FACTFOLD_KAFKA__BOOTSTRAP_SERVERS (bootstrap_servers of [kafka] in factfold.toml). "
            f"Without Kafka, {without_kafka}",
            place=error.place,
        ) from error
    return settings


def log_to_stderr(*, as_json: bool = False) -> None:
    """Keep what a library logs, such as a retry, out of what a command prints; as a line of JSON each, if asked for."""
    import structlog

    given = [_escaped_traceback, *structlog.get_config()["processors"]]
    if as_json:
        time, level = structlog.processors.TimeStamper(fmt="iso"), structlog.processors.add_log_level
        given = [level, time, structlog.processors.JSONRenderer()]
    processors = [_retry_in_words, *(one for one in dict.fromkeys(given) if one is not _retry_in_words)]
    # The stream is looked up at each message: a test's runner puts another in its place and closes it.
    structlog.configure(processors=processors, logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def _retry_in_words(logger: object, method: str, event: Any) -> Any:
    """Say why something is tried again, and not by which code of ours."""
    if event["event"] != "stamina.retry_scheduled":
        return event
    return {"event": "trying again", "cause": event["caused_by"], "seconds": event["wait_for"]}


def _escaped_traceback(logger: object, method: str, event: Any) -> Any:
    """Escape the one value that is shown as it is."""
    return {**event, "exception": escaped(event["exception"])} if "exception" in event else event
