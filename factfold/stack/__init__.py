"""PostgreSQL, Kafka and Kafka Connect on this machine, without Docker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventstore.extras import import_with_extras

if TYPE_CHECKING:
    from factfold.stack.artifacts import delta_jars, spark_jars
    from factfold.stack.errors import (
        ArtifactError,
        JavaTooOld,
        NoJava,
        PortRefused,
        ServerFailed,
        StackBusy,
        StackError,
        StackNotUp,
    )
    from factfold.stack.java import start_lightly
    from factfold.stack.local import LocalStack
    from factfold.stack.state import PostgresInfo, StackInfo

__all__ = [
    "ArtifactError",
    "JavaTooOld",
    "LocalStack",
    "NoJava",
    "PortRefused",
    "PostgresInfo",
    "ServerFailed",
    "StackBusy",
    "StackError",
    "StackInfo",
    "StackNotUp",
    "delta_jars",
    "spark_jars",
    "start_lightly",
]

_HOMES = {"LocalStack": "local", "PostgresInfo": "state", "StackInfo": "state", "delta_jars": "artifacts",
          "spark_jars": "artifacts", "start_lightly": "java"}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that importing this package starts and loads nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_with_extras(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
