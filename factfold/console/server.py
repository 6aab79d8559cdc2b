"""The console's server: one process, a token of its own at each start."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from eventstore.errors import FactfoldError
from factfold.console.app import application
from factfold.console.doors import Door
from factfold.console.security import Access
from factfold.console.sources import Sources

_REQUESTS: Final = 64  # at once; more get 503 until one ends
_GRACE_SECONDS: Final = 3


class PortTaken(FactfoldError):
    """The console cannot listen on its address."""


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
        raise PortTaken(
            f"the console cannot listen on {host}:{port}: {error.strerror}",
            remedy="choose another port with --port. --port 0 takes a free one",
        ) from error
    return listener
