"""Spans of commands that run for long: one option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from factfold import on_demand

if TYPE_CHECKING:
    pass

Tracing = Annotated[
    bool,
    typer.Option(
        "--tracing/--no-tracing", envvar="FACTFOLD_TRACING",
        help="Open OpenTelemetry spans. The SDK is configured around the command, such as by opentelemetry-instrument.",
    ),
]  # fmt: skip


def spans_if(asked: bool) -> on_demand.Spans | None:
    """Spans by the tracer provider of the process, if they are asked for. Else None, and nothing is imported."""
    if not asked:
        return None

    return on_demand.Spans()
