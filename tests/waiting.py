"""The one way tests wait for what threads, processes and servers do."""

from __future__ import annotations

import time

PATIENCE = 120.0  # seconds: what takes two on an idle machine has taken forty on a busy one


def wait_until(condition, *, within=PATIENCE, alive=None, what="it", pause=0.02):
    """Look again and again until a condition gives something true, and return that.

    ``alive`` is called before each further look and raises when there is nothing left to wait for; ``what``, a text or
    a function that gives one, says what did not come.
    """
    until = time.monotonic() + within
    while not (found := condition()):
        if alive:
            alive()
        assert time.monotonic() < until, f"{what() if callable(what) else what} did not happen within {within} s"
        time.sleep(pause)
    return found
