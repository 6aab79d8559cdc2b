"""Metrics of a process, scraped as Prometheus does."""

from __future__ import annotations

import contextlib
import socket
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Values by name and label values, in the order of the labels' names; nothing while nothing answers."""
    found: dict[tuple[str, ...], float] = {}
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            found.update({(one.name, *dict(sorted(one.labels.items())).values()): one.value for one in family.samples})
    return found
