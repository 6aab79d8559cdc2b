"""Free ports, and a clear refusal for taken ones."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable

from factfold.stack.errors import StackError

LOOPBACK = "127.0.0.1"
# Below the range from which Linux (32768), macOS and Windows (49152) take the ports of outgoing connections:
# while a server is stopped for a test, no client's connection can land on its port.
RANGE = range(20_000, 32_000)


def free_ports(names: Iterable[str], *, besides: Iterable[int] = ()) -> dict[str, int]:
    """Choose a different free port for every name, ``besides`` others; raises StackError when none can be had."""
    chosen: dict[str, int] = {}
    taken = set(besides)
    for name in names:
        chosen[name] = _free_port(taken)
        taken.add(chosen[name])
    return chosen


def is_free(port: int) -> bool:
    """Say whether `port` can be listened on now."""
    return _refusal(port) is None


def require_free(port: int, *, server: str) -> None:
    """Raise StackError, naming the holder if this user may see it, when `port` cannot be listened on."""
    problem = _refusal(port)
    if problem is None:
        return
    holder = _holder(port)
    cause = f"is taken by {holder}" if holder else f"is refused by the system: {problem.strerror}"
    raise StackError(
        f"port {port}, requested by {server}, {cause}",
        remedy="free it, or run `factfold stack down` and `factfold stack up`, which chooses free ports",
        place=f"{LOOPBACK}:{port}",
        code="port-refused",
    )


def _free_port(taken: set[int]) -> int:
    for port in random.sample(RANGE, 200):
        if port not in taken and _refusal(port) is None:
            return port
    raise StackError(
        f"none of 200 ports tried on {LOOPBACK} can be listened on",
        remedy=f"allow listening on {LOOPBACK}:{RANGE.start}-{RANGE.stop - 1}",
        place=LOOPBACK,
        code="port-refused",
    )


def _refusal(port: int) -> OSError | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set this too: connections left in TIME_WAIT by a stopped server are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except (OSError, OverflowError) as refused:
            return refused if isinstance(refused, OSError) else OSError(errno.EINVAL, str(refused))
    return None


def _holder(port: int) -> str | None:
    import psutil  # for an error alone

    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return _describe(connection.pid)
    return None


def _describe(pid: int | None) -> str:
    if pid is None:
        return "another user's process"
    import psutil

    try:
        return f"{psutil.Process(pid).name()} (process {pid})"
    except psutil.Error:
        return f"process {pid}"
