"""What readings load on demand, imported by one thread before several of them read.

Threads that import modules which import each other, such as those of `eventstore.backends.sql`, see them half made.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Final

_READ_BY: Final = (
    "cdc.connect.client",
    "eventstore.backends.sql.sqlite",
    "eventstore.kafka.groups",
    "projections.branching.router",
    "projections.lifecycle.lag",
    "projections.spark.reading.kafka_source",
    "projections.spark.reading.store_source",
    "projections.stores.behind_rows",
    "projections.stores.letters",
    "projections.stores.opening",
    "projections.stores.sqlite",
)


def import_for_readings() -> None:
    """Import what readings need. What an extra lacks is a problem of the part that needs it, and not of the start."""
    for module in _READ_BY:
        with suppress(ImportError):
            import_module(module)
