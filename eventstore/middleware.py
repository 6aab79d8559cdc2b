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

from eventstore.dispatcher import Middleware, Refusal, Result, Send
from eventstore.errors import FactfoldError
from eventstore.messages import Command

__all__ = ["logged", "required", "traced"]


def required(rule: Callable[[Command], str | None]) -> Middleware:
    """Refuse what a rule gives a reason against: which user may do this, which arguments make sense.

    The rule is asked before anything is loaded, and once, however often a lost race is decided again.
    """

    def middleware(command: Command, send: Send) -> Result:
        reason = rule(command)
        return send(command) if reason is None else Refusal(command, command.stream, reason)

    return middleware


def logged() -> Middleware:
    """Log each command with what came of it and how long that took. Arguments stay out, they may be personal."""
    log = structlog.get_logger("eventstore.commands")

    def middleware(command: Command, send: Send) -> Result:
        began = time.perf_counter()
        told = log.bind(command=command.name, id=str(command.id), stream=command.stream)
        try:
            result = send(command)
        except FactfoldError as error:
            told.error("command failed", error=type(error).__name__, cause=error.message, seconds=_since(began))
            raise
        if isinstance(result, Refusal):
            told.info("command refused", reason=result.reason, seconds=_since(began))
        else:
            told.info("command accepted", version=result.version, events=len(result.events), seconds=_since(began))
        return result

    return middleware


def traced(span: Callable[[Command], AbstractContextManager[str]]) -> Middleware:
    """Send each command inside of a span. Its events carry the span's W3C ``traceparent``, and so does what they cause.

    ``span`` opens one, as the child of ``command.metadata.traceparent`` where there is one, and gives its traceparent.
    """

    def middleware(command: Command, send: Send) -> Result:
        with span(command) as traceparent:
            return send(replace(command, metadata=replace(command.metadata, traceparent=traceparent)))

    return middleware


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)
