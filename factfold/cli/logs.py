"""Where a command's logs go."""

from __future__ import annotations

import sys
from typing import Any

from factfold.cli.shown_values import escaped


def log_to_stderr(*, as_json: bool = False) -> None:
    """Keep what a library logs, such as a retry, out of what a command prints; as a line of JSON each, if asked for."""
    import structlog

    given = [_escaped_traceback, *structlog.get_config()["processors"]]
    if as_json:
        time, level = structlog.processors.TimeStamper(fmt="iso"), structlog.processors.add_log_level
        given = [level, time, structlog.processors.JSONRenderer()]
    processors = [_retry_in_words, *(one for one in dict.fromkeys(given) if one is not _retry_in_words)]
    # The stream is looked up at each message: a test's runner puts another in its place and closes it.
    structlog.configure(processors=processors, logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def _retry_in_words(logger: object, method: str, event: Any) -> Any:
    """Say why something is tried again, and not by which code of ours."""
    if event["event"] != "stamina.retry_scheduled":
        return event
    return {"event": "trying again", "cause": event["caused_by"], "seconds": event["wait_for"]}


def _escaped_traceback(logger: object, method: str, event: Any) -> Any:
    """Escape the one value that is shown as it is."""
    return {**event, "exception": escaped(event["exception"])} if "exception" in event else event
