"""A runner that is opened again whenever it fails, in a thread of its own, and must not end before it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from projections import Environment, Follower, ProjectionGroup
from tests.waiting import wait_until


@contextmanager
def followed(
    environment: Environment, group: ProjectionGroup, **options: Any
) -> Iterator[tuple[Follower, Callable[[], None]]]:
    """The follower once it has opened its first runner, and a check that it still goes on."""
    stop, opened = threading.Event(), threading.Event()
    follower = Follower(environment=environment, group=group, on_open=lambda _: opened.set(), **options)
    following = threading.Thread(target=lambda: follower.run(stop=stop))

    def goes_on() -> None:
        assert following.is_alive(), "the follower has ended"

    following.start()
    try:
        wait_until(opened.is_set, alive=goes_on, what="an open runner")
        yield follower, goes_on
    finally:
        stop.set()
        following.join(60)
