"""Where a command's logs go."""

from __future__ import annotations

import sys


def log_to_stderr(*, as_json: bool = False) -> None:
    """Keep what a library logs, such as a retry, out of what a command prints; as a line of JSON each, if asked for."""
    import structlog

    # The stream is looked up at each message: a test's runner puts another in its place and closes it.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
    if as_json:
        time, level = structlog.processors.TimeStamper(fmt="iso"), structlog.processors.add_log_level
        structlog.configure(processors=[level, time, structlog.processors.JSONRenderer()])
