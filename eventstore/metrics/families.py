"""Families of metrics: a name, a type, a meaning and labels, declared as data and given values here.

A family is what Prometheus shows under one name. The documentation's table and the dashboard are tested against these
declarations, so a metric that is not declared cannot be exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from threading import Lock
from typing import ClassVar, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from eventstore.errors import DeclarationError

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)


class Kind(StrEnum):
    """The type of a family, by Prometheus' names.

    Examples:
        >>> OPEN = Family("factfold_open_reviews", Kind.GAUGE, "Reviews that wait for a clerk.", ("desk",))
    """

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One name of a metric, as a query writes it: counters end in `_total`, times are seconds, sizes are bytes.

    Args:
        name: The name, with the prefix `factfold_`.
        kind: The type.
        help: The meaning, one sentence.
        labels: The labels of each value.
        bounds: The upper bounds of a histogram's buckets.

    Examples:
        >>> REVIEWS = Family("factfold_reviews_total", Kind.COUNTER, "Reviews, by their verdict.", ("verdict",))
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def gauge(name: str, help: str, *labels: str) -> Family:
    """Declare a gauge by its name without the prefix."""
    return Family(f"factfold_{name}", Kind.GAUGE, help, labels)


RUNNER_INFO: Final = Family(
    "factfold_runner_info", Kind.GAUGE, "Always 1: what runs at this address, and its version of Factfold.",
    ("runner", "name", "version"),
)  # fmt: skip
RESTARTS: Final = Family(
    "factfold_runner_restarts_total", Kind.COUNTER, "Starts after a failure that may pass.", ("runner", "name")
)
FAILURES: Final = Family(
    "factfold_runner_failures_in_a_row", Kind.GAUGE, "Failures since the runner last worked.", ("runner", "name")
)
LOOK_FAILURES: Final = Family(
    "factfold_runner_look_failures_total", Kind.COUNTER,
    "Looks at a database, broker or worker that failed, and left older values in place.", ("runner", "name"),
)  # fmt: skip
RUNNER: Final = (RUNNER_INFO, RESTARTS, FAILURES, LOOK_FAILURES)


class Metrics:
    """Values of some families, from any thread. `registry` is what `serve_metrics` serves.

    A subclass declares its `families` and says in methods what they count.

    Args:
        labels: Values of labels that are the same for all of these metrics.

    Examples:
        >>> class ReviewMetrics(Metrics):
        ...     families = (REVIEWS,)
        ...     def reviewed(self, verdict: str) -> None:
        ...         self.count(REVIEWS, verdict=verdict)
    """

    families: ClassVar[tuple[Family, ...]] = ()

    def __init__(self, **labels: str) -> None:
        self.registry = CollectorRegistry()
        self._fixed = labels
        self._counters, self._gauges = dict[str, Counter](), dict[str, Gauge]()
        self._histograms, self._totals, self._lock = dict[str, Histogram](), dict[object, float](), Lock()
        self._shown: dict[str, set[tuple[str, ...]]] = {}
        for family in self.families:
            self._make(family)

    def count(self, family: Family, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        _child(self._made(self._counters, family), self._all(family, labels)).inc(amount)

    def raise_to(self, family: Family, total: float, **labels: str) -> None:
        """Raise a counter by what a total, read elsewhere, has grown. The first total counts from 0."""
        with self._lock:
            key = family.name, *sorted(labels.items())
            before = self._totals.get(key, 0.0)
            self._totals[key] = total
        self.count(family, max(0.0, total - before), **labels)

    def set(self, family: Family, value: float, **labels: str) -> None:
        """Set a gauge."""
        _child(self._made(self._gauges, family), self._all(family, labels)).set(value)

    def compute(self, family: Family, value: Callable[[], float], **labels: str) -> None:
        """Compute a gauge at each scrape. The function must be quick and must not raise."""
        _child(self._made(self._gauges, family), self._all(family, labels)).set_function(value)

    def replace(self, family: Family, values: Iterable[tuple[dict[str, str], float]]) -> None:
        """Set all values of a gauge: what is not among them is no longer shown."""
        shown, gauge = set(), self._made(self._gauges, family)
        for labels, value in values:
            self.set(family, value, **labels)
            shown.add(tuple(self._all(family, labels).values()))
        # Not cleared before: a scrape in between would find nothing, and an alert would start to wait again.
        for former in self._shown.get(family.name, set()) - shown:
            gauge.remove(*former)
        self._shown[family.name] = shown

    def observe(self, family: Family, value: float, **labels: str) -> None:
        """Add a value to a histogram."""
        _child(self._made(self._histograms, family), self._all(family, labels)).observe(value)

    def _make(self, family: Family) -> None:
        declared = (family.name, family.help, family.labels)
        if family.kind is Kind.COUNTER:
            self._counters[family.name] = Counter(*declared, registry=self.registry)
        elif family.kind is Kind.GAUGE:
            self._gauges[family.name] = Gauge(*declared, registry=self.registry)
        else:
            made = Histogram(*declared, registry=self.registry, buckets=family.bounds)
            self._histograms[family.name] = made
        # One that appears with its first count shows no increase.
        if family.kind is not Kind.GAUGE and family.labels and not set(family.labels) - set(self._fixed):
            {**self._counters, **self._histograms}[family.name].labels(**self._all(family, {}))

    def _made(self, metrics: Mapping[str, _Metric], family: Family) -> _Metric:
        if family.name not in metrics:
            raise DeclarationError(
                f"{type(self).__name__} has no {family.name} that this method can change",
                remedy="list the family in families=, and use the method of its kind: count, set or observe",
                place=family.name,
            )
        return metrics[family.name]

    def _all(self, family: Family, labels: dict[str, str]) -> dict[str, str]:
        return {label: labels[label] if label in labels else self._fixed[label] for label in family.labels}


class RunnerMetrics(Metrics):
    """The metrics of one runner: what runs here, its restarts, and the families of a subclass.

    Args:
        runner: What runs, such as `subscriptions`.
        name: Its name, such as the group.
        labels: Values of labels that are the same for all of the runner's metrics.

    Examples:
        >>> class DeskMetrics(RunnerMetrics):
        ...     families = (*RunnerMetrics.families, REVIEWS)
        >>> metrics = DeskMetrics("desk", "review-desk")
    """

    families: ClassVar[tuple[Family, ...]] = RUNNER

    def __init__(self, runner: str, name: str, **labels: str) -> None:
        super().__init__(runner=runner, name=name, version=version("factfold"), **labels)
        self.set(RUNNER_INFO, 1)
        self.set(FAILURES, 0)

    def restarted(self, failures: int) -> None:
        """Count a start after so many failures in a row."""
        self.count(RESTARTS)
        self.set(FAILURES, failures)

    def recovered(self, failures: int = 0) -> None:
        """Note that the runner works again."""
        self.set(FAILURES, 0)

    def look_failed(self) -> None:
        """Count a look that failed."""
        self.count(LOOK_FAILURES)


def _child(metric: _Metric, labels: dict[str, str]) -> _Metric:
    return metric.labels(**labels) if labels else metric
