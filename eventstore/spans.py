"""OpenTelemetry spans: a command, its events, the reactions to them and the commands that these send are one trace.

    spans = Spans()                                                   # by the tracer provider of the process
    dispatcher = Dispatcher(store, middleware=[spans.command])
    run_subscription(review, stop=stop, engine=engine, around=[spans.handling])
    run_processes(store, [Fulfilment], stop=stop, spans=spans)

The store keeps the W3C `traceparent` of a command's span with its events, and topics carry it as a header. Your program
configures the SDK, its exporters and its sampling. Without an SDK spans are not recorded, and a trace that arrives is
passed on. Spans hold names, ids and counts, and of errors only the class: arguments and messages may be personal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from uuid import UUID

from eventstore.aggregates.dispatcher import Refusal, Result, Send
from eventstore.errors import SchemaError
from eventstore.extras import require_extra
from eventstore.store import Command

require_extra("tracing")

from opentelemetry import trace  # noqa: E402
from opentelemetry.context import Context  # noqa: E402
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode  # noqa: E402
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: E402

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from eventstore.delivery.calls import HandlerCall
    from eventstore.processes.engine import Addressed

__all__ = ["Spans"]

# Names of attributes by the messaging conventions of version 1.44.0, whose status is Development. They call the span
# around a handler `process`, of the kind CONSUMER, and leave open whether the creator's span is its parent or linked.
_OPERATION: Final = {"messaging.system": "factfold", "messaging.operation.name": "process",
                     "messaging.operation.type": "process"}  # fmt: skip
_W3C: Final = TraceContextTextMapPropagator()
_HEADER: Final = "traceparent"


class Spans:
    """Opens spans of commands, handler calls and steps of processes.

    Args:
        tracer_provider: The provider of an SDK. By default the one that is set for the process.

    Raises:
        MissingExtra: The extra `tracing` is not installed.

    Examples:
        >>> dispatcher = Dispatcher(store, middleware=[Spans().command])
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("factfold", version("factfold"), tracer_provider)

    def command(self, command: Command, send: Send) -> Result:
        """Middleware of a dispatcher: send each command inside a span, and store the span's context with its events.

        The parent is the current span, such as that of a request or a handler. Without one it is the span that the
        command's metadata names.
        """
        attributes = {"factfold.stream": command.stream, "factfold.command.id": str(command.id)}
        with self._opened(command.name, SpanKind.INTERNAL, [command.metadata.traceparent], attributes) as span:
            traceparent = _traceparent(span) or command.metadata.traceparent
            result = send(replace(command, metadata=replace(command.metadata, traceparent=traceparent)))
            span.set_attribute("factfold.command.outcome", "refused" if isinstance(result, Refusal) else "accepted")
            return result

    @contextmanager
    def handling(self, call: HandlerCall) -> Iterator[None]:
        """Open a span around a call of a subscription's handler: `around` of `run_subscription`.

        The parent is the span of the command that led to the event. A call for events of several traces begins a trace
        of its own, which is linked to theirs.
        """
        traceparents, attributes = _traceparents(call), self._of_call(call)
        with self._opened(f"process {call.topic}", SpanKind.CONSUMER, traceparents, attributes):
            yield

    def _of_call(self, call: HandlerCall) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {
            **_OPERATION,
            "messaging.destination.name": call.topic,
            "messaging.consumer.group.name": call.subscription.group,
            "code.function.name": call.subscription.name,
        }
        if len(call.arrivals) > 1:
            return attributes | {"messaging.batch.message_count": len(call.arrivals)}
        (one,) = call.arrivals
        return attributes | {
            "messaging.message.id": str(UUID(one.id)),
            "factfold.event.type": str(one.type),
            "factfold.place": one.place,
            "factfold.retries": one.retries,
        }

    @contextmanager
    def step(self, addressed: Addressed) -> Iterator[str | None]:
        """Open a span around a step of a process, and give the traceparent of what it decides."""
        (process, instance), cause = addressed.key, addressed.input.cause
        attributes = {
            **_OPERATION,
            "messaging.destination.name": process,
            "messaging.message.id": str(cause.id),
            "factfold.stream": f"{process}-{instance}",
            "factfold.cause": f"{cause.kind} {cause.name}",
        }
        with self._opened(f"process {process}", SpanKind.CONSUMER, [cause.traceparent], attributes) as span:
            yield _traceparent(span) or cause.traceparent

    @contextmanager
    def _opened(
        self, name: str, kind: SpanKind, traceparents: Sequence[str | None], attributes: Mapping[str, str | int]
    ) -> Iterator[Span]:
        context, links = _parent(traceparents)
        # The SDK would record the message of an error, which may hold a personal value.
        with self._tracer.start_as_current_span(
            name, context, kind, attributes, links, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                raise


def _parent(traceparents: Sequence[str | None]) -> tuple[Context | None, list[Link]]:
    """Return the context of the parent, None for the current one, and links to spans of other traces."""
    stored = {one: _context(one) for one in traceparents if one is not None}
    contexts = [context for context in stored.values() if context.is_valid]
    current = trace.get_current_span().get_span_context()
    if current.is_valid:
        return None, [Link(one) for one in contexts if one.trace_id != current.trace_id]
    if len(contexts) == 1:
        return trace.set_span_in_context(trace.NonRecordingSpan(contexts[0])), []
    return None, [Link(one) for one in contexts]


def _traceparents(call: HandlerCall) -> list[str | None]:
    """Return the traceparents of the events. A record with incomplete headers has none, and is handled all the same."""
    traceparents: list[str | None] = []
    for arrival in call.arrivals:
        with suppress(SchemaError):
            traceparents.append(arrival.recorded().metadata.traceparent)
    return traceparents


def _context(traceparent: str) -> SpanContext:
    extracted = _W3C.extract({_HEADER: traceparent}, Context())
    return trace.get_current_span(extracted).get_span_context()


def _traceparent(span: Span) -> str | None:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get(_HEADER)
