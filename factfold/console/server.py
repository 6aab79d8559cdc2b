"""The console's server: one process, a token of its own at each start."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from eventstore.errors import FactfoldError
from factfold.console.app import application
from factfold.console.security import Access
from factfold.console.sources import Sources

HEADERS_SECONDS: Final = 5.0  # so long a connection may be open without a request that is answered
WAITING: Final = 16  # connections of one address that may wait so. One more closes the oldest of them

_REQUESTS: Final = 64  # at once; more get 503 until one ends
_GRACE_SECONDS: Final = 3


class Server:
    """Listens at once, so that `url` holds the port; answers while `run` or `serving` does."""

    def __init__(
        self, sources: Sources, *, host: str, port: int, also: Iterable[str] = (), allow_actions: bool = False
    ) -> None:
        self._socket = _listening(host, port)
        taken = self._socket.getsockname()[1]
        token = secrets.token_urlsafe(32)
        own = f"[{host}]" if ":" in host else host
        access = Access.at(taken, token=token, also=(f"{own}:{taken}", *also), allow_actions=allow_actions)
        self.url = f"http://{own}:{taken}/?token={token}"
        config = uvicorn.Config(
            application(sources, access), log_config=None, access_log=False, server_header=False, date_header=False,
            http=Door, ws="none", proxy_headers=False, limit_concurrency=_REQUESTS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    def run(self, stop: threading.Event) -> None:
        """Answer requests until `stop` is set."""
        with self.serving() as thread:
            while thread.is_alive() and not stop.wait(0.2):
                pass

    @contextmanager
    def serving(self) -> Iterator[threading.Thread]:
        """Answer requests until the block ends; gives the thread that does."""
        thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, name="console server")
        thread.start()
        try:
            yield thread
        finally:
            self._server.should_exit = True
            thread.join()
            self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise FactfoldError(
            f"the console cannot listen on {host}:{port}: {error.strerror}",
            remedy="choose another port with --port. --port 0 takes a free one",
            code="port-taken",
        ) from error
    return listener


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
