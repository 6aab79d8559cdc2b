"""What stands around every command of a dispatcher: rules that refuse, logs, traces.

A middleware is a function of a command and of what sends it on. It may look, refuse (``raise Refused`` or return a
`Refusal`), send the command on with other metadata, and look at what came of it:

    def timed(command: Command, send: Send) -> Result:
        began = time.perf_counter()
        try:
            return send(command)
        finally:
            seconds.labels(command.name).observe(time.perf_counter() - began)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import structlog

from eventstore.aggregates.dispatcher import Middleware, Refusal, Result, Send
from eventstore.errors import FactfoldError
from eventstore.messages import Command

__all__ = ["logged", "required", "traced"]


def required(rule: Callable[[Command], str | None]) -> Middleware:
    """Refuse a command if the rule returns a reason, such as a missing permission.

    The rule is called once for a command, before anything is loaded, even if the command loses races.

    Examples:
        >>> def staff_only(command: Command) -> str | None:
        ...     return None if user.is_staff else "only staff may do this"
        >>> service = Dispatcher(store, middleware=[required(staff_only)])
    """

    def middleware(command: Command, send: Send) -> Result:
        reason = rule(command)
        return send(command) if reason is None else Refusal(command, command.stream, reason)

    return middleware


def logged() -> Middleware:
    """Log each command with its result and duration. Arguments stay out, since they may be personal.

    Examples:
        >>> service = Dispatcher(store, middleware=[logged()])
    """
    log = structlog.get_logger("eventstore.commands")

    def middleware(command: Command, send: Send) -> Result:
        began = time.perf_counter()
        bound = log.bind(command=command.name, id=str(command.id), stream=command.stream)
        try:
            result = send(command)
        except FactfoldError as error:
            bound.error("command failed", error=type(error).__name__, cause=error.message, seconds=_since(began))
            raise
        if isinstance(result, Refusal):
            bound.info("command refused", reason=result.reason, seconds=_since(began))
        else:
            bound.info("command accepted", version=result.version, events=len(result.events), seconds=_since(began))
        return result

    return middleware


def traced(span: Callable[[Command], AbstractContextManager[str]]) -> Middleware:
    """Send each command inside a span. Its events, and what they cause, carry the span's W3C `traceparent`.

    Args:
        span: Opens a span, as a child of `command.metadata.traceparent` if there is one, and yields its traceparent.

    Examples:
        >>> service = Dispatcher(store, middleware=[traced(span)])
    """

    def middleware(command: Command, send: Send) -> Result:
        with span(command) as traceparent:
            return send(replace(command, metadata=replace(command.metadata, traceparent=traceparent)))

    return middleware


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)
