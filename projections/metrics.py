"""Figures of a runner for Prometheus, in its text format 0.0.4, from an HTTP server of the standard library.

All of them carry the label `group`:

    factfold_projection_batches_total, …_records_total, …_staged_rows_total, …_affected_keys_total
    factfold_projection_upserts_total, …_retractions_total        rows of views written and retracted
    factfold_projection_step_seconds_total{step=…}                 where the time of batches went
    factfold_projection_batch_seconds                              histogram: one batch, read to commit
    factfold_projection_batch_size                                 records that the next batch may have
    factfold_projection_lag_offsets{topic=…}, …_lag_seconds        see `projections.lag`
    factfold_projection_bad_records_total{kind=…}                  records put aside, by what is wrong with them
    factfold_projection_restarts_total, …_failures_in_a_row        of the restart policy
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from projections.errors import MetricsPortTaken
from projections.lag import RunLag

if TYPE_CHECKING:
    from projections.spark.incremental import BatchReport

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# A quiet batch takes a fifth of a second, the target is two; beyond a minute something is wrong.
_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_PREFIX: Final = "factfold_projection"

Labels = tuple[tuple[str, str], ...]
_HELP: Final[Mapping[str, tuple[str, str]]] = {
    "batches_total": ("counter", "Batches applied."),
    "records_total": ("counter", "Offsets of applied batches."),
    "staged_rows_total": ("counter", "Rows of tables that batches brought."),
    "affected_keys_total": ("counter", "View keys that batches reached."),
    "upserts_total": ("counter", "Rows written to views."),
    "retractions_total": ("counter", "Rows retracted from views."),
    "step_seconds_total": ("counter", "Seconds spent in each step of a batch."),
    "batch_seconds": ("histogram", "Seconds of a batch, from reading to its commit."),
    "batch_size": ("gauge", "Records that the next batch may have."),
    "lag_offsets": ("gauge", "Offsets that wait; markers of transactions count too."),
    "lag_seconds": ("gauge", "Seconds since the oldest waiting offset was known; 0 when caught up."),
    "bad_records_total": ("counter", "Records put aside, by what is wrong with them."),
    "restarts_total": ("counter", "Starts after a failure."),
    "failures_in_a_row": ("gauge", "Failures since the run last went well."),
}


@dataclass
class RunMetrics:
    """The figures of one group's runner, from any thread; ``text`` gives them all."""

    group: str
    _values: dict[tuple[str, Labels], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lag: RunLag = field(default_factory=lambda: RunLag({}, 0.0))
    _noted: float = 0.0

    def __post_init__(self) -> None:
        """Counters begin at 0: one that appears with its first count shows no increase."""
        for name in ("batches_total", "records_total", "staged_rows_total", "affected_keys_total", "upserts_total",
                     "retractions_total", "lag_seconds", "restarts_total", "failures_in_a_row"):  # fmt: skip
            self._set(name, 0.0)

    def batch(self, report: BatchReport) -> None:
        """Count an applied batch."""
        counts = {"batches": 1, "records": report.records, "staged_rows": report.staged,
                  "affected_keys": report.affected, "upserts": report.upserts,
                  "retractions": report.retractions}  # fmt: skip
        for name, count in counts.items():
            self._add(f"{name}_total", count)
        for step, seconds in report.seconds.items():
            self._add("step_seconds_total", seconds, step=step)
        for kind, count in report.set_aside.items():
            self._add("bad_records_total", count, kind=kind)
        self._observe(report.total_seconds)

    def standing(self, lag: RunLag, *, topics: Iterable[str], batch_size: int) -> None:
        """Note how far behind the run is, and what the next batch may hold."""
        for topic in topics:
            self._set("lag_offsets", lag.offsets.get(topic, 0), topic=topic)
        self._set("batch_size", batch_size)
        self._lag, self._noted = lag, time.monotonic()

    def restarted(self, failures: int) -> None:
        """Count a start after so many failures in a row."""
        self._add("restarts_total", 1)
        self._set("failures_in_a_row", failures)

    def recovered(self) -> None:
        """Note that the run goes well again."""
        self._set("failures_in_a_row", 0)

    def text(self) -> str:
        """Everything in Prometheus' text format; what waits grows older between two looks, and while none succeeds."""
        age = time.monotonic() - self._noted if self._lag.total else 0.0
        self._set("lag_seconds", self._lag.seconds + age)
        with self._lock:
            values = dict(self._values)
        lines: list[str] = []
        for family, (kind, told) in _HELP.items():
            samples = [(n, labels, v) for (n, labels), v in values.items() if _family(n) == family]
            if samples:
                lines += [f"# HELP {_PREFIX}_{family} {told}", f"# TYPE {_PREFIX}_{family} {kind}"]
                lines += [f"{_PREFIX}_{name}{_told(labels)} {float(value)!r}" for name, labels, value in samples]
        return "\n".join([*lines, ""])

    def _observe(self, seconds: float) -> None:
        for bound in _BOUNDS:
            self._add("batch_seconds_bucket", float(seconds <= bound), le=f"{bound:g}")
        self._add("batch_seconds_bucket", 1, le="+Inf")
        self._add("batch_seconds_sum", seconds)
        self._add("batch_seconds_count", 1)

    def _add(self, name: str, value: float, **labels: str) -> None:
        key = (name, (("group", self.group), *labels.items()))
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + value

    def _set(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self._values[name, (("group", self.group), *labels.items())] = value


def _family(name: str) -> str:
    return "batch_seconds" if name.startswith("batch_seconds_") else name


def _told(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@contextmanager
def serve_metrics(metrics: RunMetrics, *, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer GET /metrics for the block, from a thread of its own; gives the port, a free one for 0.

    MetricsPortTaken where it cannot listen.
    """
    try:
        server = ThreadingHTTPServer((host, port), _answering(metrics))
    except OSError as error:
        raise MetricsPortTaken(
            f"metrics cannot be served: {error.strerror}",
            remedy="choose another --metrics-port, or leave it away",
            place=f"{host}:{port}",
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answering(metrics: RunMetrics) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Give the figures, or 404 for another path."""
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a line a scrape says nothing."""

    return Answer
