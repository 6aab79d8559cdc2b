"""Spans of commands that run for long: one option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from eventstore.spans import Spans

Tracing = Annotated[
    bool,
    typer.Option(
        "--tracing/--no-tracing", envvar="FACTFOLD_TRACING",
        help="Open OpenTelemetry spans. The SDK is configured around the command, such as by opentelemetry-instrument.",
    ),
]  # fmt: skip


def spans_if(asked: bool) -> Spans | None:
    """Spans by the tracer provider of the process, if they are asked for. Else None, and nothing is imported."""
    if not asked:
        return None
    from eventstore.spans import Spans

    return Spans()
