"""Figures of a runner for Prometheus, by its own client.

All of them carry the label `group`:

    factfold_projection_batches_total, …_records_total, …_staged_rows_total, …_affected_keys_total
    factfold_projection_upserts_total, …_retractions_total        rows of views written and retracted
    factfold_projection_step_seconds_total{step=…}                 where the time of batches went
    factfold_projection_batch_seconds                              histogram: one batch, read to commit
    factfold_projection_batch_size                                 records that the next batch may have
    factfold_projection_lag_offsets{topic=…}, …_lag_seconds        see `projections.running.lag`
    factfold_projection_bad_records_total{kind=…}                  records put aside, by what is wrong with them
    factfold_projection_outbox_rows{topic=…}                       records of view topics that are not published yet
    factfold_projection_deletions_settled_total{table=…}           deleted rows that were let go of at the horizon
    factfold_projection_rows_forgotten_total{table=…}              rows that were forgotten by a stream's retain
    factfold_projection_restarts_total, …_failures_in_a_row        of the restart policy
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from projections.errors import MetricsPortTaken
from projections.running.lag import RunLag

if TYPE_CHECKING:
    from projections.spark.live.incremental import BatchReport

# A quiet batch takes a fifth of a second, the target is two; beyond a minute something is wrong.
_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_PREFIX: Final = "factfold_projection"

_Metric = TypeVar("_Metric", Counter, Gauge)


class RunMetrics:
    """The figures of one group's runner, from any thread; ``registry`` is what a server of metrics gives out."""

    def __init__(self, group: str) -> None:
        self.registry = CollectorRegistry()
        self._group = group
        self._lag, self._noted = RunLag({}, 0.0), 0.0
        counter, gauge = partial(self._made, Counter), partial(self._made, Gauge)
        self._counts = {
            "records": counter("records", "Offsets of applied batches."),
            "staged": counter("staged_rows", "Rows of tables that batches brought."),
            "affected": counter("affected_keys", "View keys that batches reached."),
            "upserts": counter("upserts", "Rows written to views."),
            "retractions": counter("retractions", "Rows retracted from views."),
        }
        self._batches = counter("batches", "Batches applied.")
        self._steps = counter("step_seconds", "Seconds spent in each step of a batch.", "step")
        self._bad = counter("bad_records", "Records put aside, by what is wrong with them.", "kind")
        self._settled = counter("deletions_settled", "Deleted rows let go of at the horizon.", "table")
        self._forgotten = counter("rows_forgotten", "Rows forgotten by the promises of streams.", "table")
        self._restarts = counter("restarts", "Starts after a failure.")
        self._failures = gauge("failures_in_a_row", "Failures since the run last went well.")
        self._size = gauge("batch_size", "Records that the next batch may have.")
        self._offsets = gauge("lag_offsets", "Offsets that wait; markers of transactions count too.", "topic")
        self._outbox = gauge("outbox_rows", "Records of view topics that are not published yet.", "topic")
        waiting = gauge("lag_seconds", "Seconds since the oldest waiting offset was known; 0 when caught up.")
        waiting.labels(group).set_function(self._lag_seconds)
        told = "Seconds of a batch, from reading to its commit."
        self._seconds = Histogram(
            f"{_PREFIX}_batch_seconds", told, ["group"], buckets=_BOUNDS, registry=self.registry
        ).labels(group)
        # One that appears with its first count shows no increase.
        for metric in (*self._counts.values(), self._batches, self._restarts, self._failures):
            metric.labels(group)

    def batch(self, report: BatchReport) -> None:
        """Count an applied batch."""
        self._batches.labels(self._group).inc()
        for name, counter in self._counts.items():
            counter.labels(self._group).inc(getattr(report, name))
        for step, seconds in report.seconds.items():
            self._steps.labels(self._group, step).inc(seconds)
        for kind, count in report.set_aside.items():
            self._bad.labels(self._group, kind).inc(count)
        self._seconds.observe(report.total_seconds)

    def standing(self, lag: RunLag, *, topics: Iterable[str], batch_size: int) -> None:
        """Note how far behind the run is, and what the next batch may hold."""
        for topic in topics:
            self._offsets.labels(self._group, topic).set(lag.offsets.get(topic, 0))
        self._size.labels(self._group).set(batch_size)
        self._lag, self._noted = lag, time.monotonic()

    def waiting(self, rows: Mapping[str, int]) -> None:
        """Note how many records of each view topic are not published yet."""
        for topic, count in rows.items():
            self._outbox.labels(self._group, topic).set(count)

    def let_go(self, settled: Mapping[str, int]) -> None:
        """Count deleted rows that were let go of, by table."""
        for table, count in settled.items():
            self._settled.labels(self._group, table).inc(count)

    def forgot(self, rows: Mapping[str, int]) -> None:
        """Count rows that were forgotten, by table."""
        for table, count in rows.items():
            self._forgotten.labels(self._group, table).inc(count)

    def restarted(self, failures: int) -> None:
        """Count a start after so many failures in a row."""
        self._restarts.labels(self._group).inc()
        self._failures.labels(self._group).set(failures)

    def recovered(self) -> None:
        """Note that the run goes well again."""
        self._failures.labels(self._group).set(0)

    def _lag_seconds(self) -> float:
        """What waits grows older between two looks, and while no batch succeeds."""
        age = time.monotonic() - self._noted if self._lag.total else 0.0
        return self._lag.seconds + age

    def _made(self, kind: type[_Metric], name: str, told: str, *labels: str) -> _Metric:
        return kind(f"{_PREFIX}_{name}", told, ["group", *labels], registry=self.registry)


@contextmanager
def serve_metrics(metrics: RunMetrics, *, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer GET /metrics for the block, from a thread of its own; gives the port, a free one for 0.

    MetricsPortTaken where it cannot listen.
    """
    try:
        server, thread = start_http_server(port, host, registry=metrics.registry)
    except OSError as error:
        raise MetricsPortTaken(
            f"metrics cannot be served: {error.strerror}",
            remedy="choose another --metrics-port, or leave it away",
            place=f"{host}:{port}",
        ) from error
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
