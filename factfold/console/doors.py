"""A connection of the console's server: those that bring no whole request keep no other one out."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_SECONDS: Final = 5.0
"""For so long a connection may be open without a request that is answered."""

WAITING: Final = 16
"""Connections of one address that may wait so. One more closes the oldest of them."""


class Door(H11Protocol):
    """Closes a connection without a whole request after a time, or at once if its address opens many."""

    closing: asyncio.TimerHandle | None = None
    """Closes the connection, None while it has a request that is answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()
        own = self.client and self.client[0]
        doors = (one for one in self.connections if isinstance(one, Door) and (one.client and one.client[0]) == own)
        waiting = sorted((one.closing.when(), id(one), one) for one in doors if one.closing is not None)
        for *_, oldest in waiting[:-WAITING]:
            oldest.transport.abort()

    def handle_events(self) -> None:
        """Take what has come: a whole request is answered, and the connection no longer waits."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stay()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._stay()

    def _wait(self) -> None:
        self._stay()
        self.closing = self.loop.call_later(HEADERS_SECONDS, self.transport.abort)

    def _stay(self) -> None:
        if self.closing is not None:
            self.closing.cancel()
        self.closing = None
