"""The local stack: servers that start together, are found again later, and stop alone."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

from factfold.stack import connect, kafka, postgres, processes, registry
from factfold.stack.artifacts import connect_plugins, kafka_jars, registry_folder
from factfold.stack.errors import StackBusy, StackError, StackNotUp
from factfold.stack.java import require_java
from factfold.stack.ports import free_ports, is_free, require_free
from factfold.stack.processes import Launch, RecordedProcess, Wait, until_answering
from factfold.stack.state import OPTIONAL_SERVERS, SERVERS, StackInfo, exclusive, load, save, stacks_folder, state_file

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_PORTS = (*SERVERS, "controller")
_EVERY = (*SERVERS, *OPTIONAL_SERVERS)
# What a server is made of, fetched once for a machine.
_FETCHED: Mapping[str, Callable[[], object]] = {
    "postgres": postgres.install_tree,
    "kafka": kafka_jars,
    "connect": connect_plugins,
    "registry": registry_folder,
}
# Started side by side, each in its order: Connect needs Kafka.
_CHAINS = (("postgres",), ("kafka", "connect"), OPTIONAL_SERVERS)
# Ten times what was measured on two cores with nothing else running.
_WITHIN = {"postgres": 60.0, "kafka": 90.0, "connect": 180.0, "registry": 120.0}
# SIGINT is PostgreSQL's fast shutdown: it does not wait for clients to leave.
_STOP = {"postgres": signal.SIGINT}


class _Server(Protocol):
    def prepare(self, info: StackInfo) -> None: ...
    def launch(self, info: StackInfo) -> Launch: ...
    def answers(self, info: StackInfo) -> bool: ...


_MODULES: Mapping[str, _Server] = {"postgres": postgres, "kafka": kafka, "connect": connect, "registry": registry}


@dataclass(frozen=True)
class ServerStatus:
    """What one server is doing: `up` (it answers), `silent` (it runs, it does not answer) or `down`."""

    server: str
    state: str
    port: int
    pid: int | None
    log: Path


class LocalStack:
    """PostgreSQL, Kafka and Kafka Connect on this machine, and optionally a schema registry.

    Args:
        name: The name by which other processes find the stack.
        ephemeral: The servers belong to this process. Their data is deleted at the end of the `with` block, or by the
            next stack if this process dies.
        ports: Fixed ports by server name. Other ports are free ones.

    Examples:
        >>> with LocalStack(ephemeral=True) as stack:
        ...     stack.info.bootstrap_servers
    """

    def __init__(
        self, name: str = "default", *, ephemeral: bool = False, ports: Mapping[str, int] | None = None
    ) -> None:
        if _NAME.fullmatch(name) is None:
            raise StackError(
                f"{name!r} is no name for a stack",
                remedy="use small letters, digits, - and _, at most 40, a letter or digit first",
            )
        self.name = name
        self.folder = stacks_folder() / name
        self._ephemeral = ephemeral
        self._requested_ports = dict(ports or {})
        self._recording = threading.Lock()
        self._giving_up = threading.Event()

    def __enter__(self) -> LocalStack:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def info(self) -> StackInfo:
        """Addresses, folders and processes. Raises StackNotUp if this stack was never started."""
        info = load(self.folder)
        if info is None:
            raise StackNotUp(
                f"there is no stack {self.name!r}",
                remedy=f"factfold stack up --stack {self.name}",
                place=str(self.folder),
            )
        return info

    def up(self, servers: Sequence[str] = SERVERS) -> StackInfo:
        """Start the servers that do not run, and return when all answer. A StackError stops what it started.

        Examples:
            >>> LocalStack("databases").up(["postgres"])
        """
        sweep()
        with self._locked():
            require_java()
            named = dict.fromkeys(map(known_server, servers))
            info = self._with_ports(self._opened(), [*_PORTS, *named])
            started = [server for server in named if not self._runs(info, server)]
            try:
                self._start_all(started)
            except BaseException:
                if self._ephemeral:
                    self._remove()
                else:
                    self._stop_all(started)
                raise
            return self.info

    def down(self, *, purge: bool = False) -> list[str]:
        """Stop the recorded servers that still run. Return their names.

        The data of an ephemeral stack is deleted, and that of another one if `purge` is true.
        """
        if not self.folder.exists():
            return []
        with self._locked():
            info = load(self.folder)
            running = [server for server in _EVERY if info is not None and self._runs(info, server)]
            if purge or self._ephemeral or (info is not None and info.owner is not None):
                self._remove()
            else:
                self._stop_all(_EVERY)
        return running

    def abandon(self) -> None:
        """Kill the servers and delete all data. Raises StackBusy if another process works on the stack."""
        with self._locked(within=0):
            self._remove()

    def start(self, server: str) -> None:
        """Start one server at its recorded port and wait until it answers. Do nothing if it runs."""
        with self._locked():
            if not self._runs(self._with_ports(self.info, [known_server(server)]), server):
                self._start(server)

    def stop(self, server: str) -> None:
        """Shut one server down and wait until it has ended."""
        with self._locked():
            self._stop(known_server(server))

    def kill(self, server: str) -> None:
        """End one server and its children with SIGKILL and wait until all have ended."""
        with self._locked():
            self._kill(known_server(server))

    def status(self) -> list[ServerStatus]:
        """Return for each server whether it is up, silent or down. Raises StackNotUp without a stack of this name."""
        info = self.info
        return [self._status(info, server) for server in info.servers]

    def _status(self, info: StackInfo, server: str) -> ServerStatus:
        recorded = info.processes.get(server)
        process = recorded.find() if recorded else None
        state = "down" if process is None else "up" if _MODULES[server].answers(info) else "silent"
        return ServerStatus(server, state, info.ports[server], process.pid if process else None, info.log(server))

    def _locked(self, *, within: float = 240) -> AbstractContextManager[None]:
        return exclusive(self.folder / "lock", within=within)

    def _opened(self) -> StackInfo:
        """Read the state file, or write the first one, before anything else is created."""
        known = load(self.folder)
        if known is None and (self.folder / "data").exists():
            raise StackError(
                "there is data without a state file, and the password was in it",
                remedy=f"remove the folder: rm -r {self.folder}",
                place=str(state_file(self.folder)),
            )
        for kind, mode in (("data", 0o755), ("logs", 0o755), ("secrets", 0o700)):
            (self.folder / kind).mkdir(mode=mode, parents=True, exist_ok=True)
        return self._moved(known) if known else self._first()

    def _first(self) -> StackInfo:
        return StackInfo(
            name=self.name,
            folder=self.folder,
            ports=self._requested_ports,
            password=secrets.token_urlsafe(24),
            processes={},
            owner=RecordedProcess.of(os.getpid()) if self._ephemeral else None,
        )

    def _moved(self, known: StackInfo) -> StackInfo:
        """Keep the ports of a stopped stack where they are still free; clients may remember them."""
        if any(self._runs(known, server) for server in _EVERY):
            return known
        retained = {name: port for name, port in known.ports.items() if is_free(port)}
        return replace(known, ports=retained | self._requested_ports, processes={})

    def _with_ports(self, info: StackInfo, servers: Sequence[str]) -> StackInfo:
        """Give a port to the servers that have none: an optional one gets it when it is first started."""
        new = [server for server in servers if server not in info.ports]
        free = free_ports(new, besides=info.ports.values())
        ported = replace(info, ports=info.ports | {name: self._requested_ports.get(name, free[name]) for name in new})
        save(ported)
        return ported

    def _start_all(self, servers: list[str]) -> None:
        self._giving_up.clear()
        # Before the threads, so that one progress bar is shown at a time.
        for server in servers:
            _FETCHED[server]()
        chains = [[s for s in servers if s in chain] for chain in _CHAINS]
        with ThreadPoolExecutor(len(chains)) as pool:
            try:
                for chain in [pool.submit(self._start_chain, chain) for chain in chains]:
                    chain.result()
            except BaseException:
                self._giving_up.set()
                raise

    def _start_chain(self, servers: list[str]) -> None:
        for server in servers:
            if not self._giving_up.is_set():
                self._start(server)

    def _start(self, server: str) -> None:
        info, module = self.info, _MODULES[server]
        require_free(info.ports[server], server=server)
        module.prepare(info)
        how = module.launch(info)
        with self._recording:
            process = processes.launch(how)
            save(self.info.with_process(server, process))
        wait = Wait(server, process, lambda: module.answers(info), how.log, _WITHIN[server])
        until_answering(wait, given_up=self._giving_up.is_set)

    def _stop_all(self, servers: tuple[str, ...] | list[str]) -> None:
        for server in reversed(servers):
            self._stop(server)

    def _stop(self, server: str) -> None:
        with_signal = _STOP.get(server, signal.SIGTERM)
        self._end(server, lambda recorded: processes.stop(recorded, with_signal=with_signal, within=30))

    def _kill(self, server: str) -> None:
        self._end(server, processes.kill)

    def _remove(self) -> None:
        """End the servers at once, for what they would save is removed next, and remove the folder."""
        for server in reversed(_EVERY):
            self._kill(server)
        shutil.rmtree(self.folder)

    def _end(self, server: str, end: Callable[[RecordedProcess], object]) -> None:
        info = load(self.folder)
        recorded = info.processes.get(server) if info else None
        if recorded is not None:
            end(recorded)
        with self._recording:
            info = load(self.folder)
            if info is not None and server in info.processes:
                save(info.with_process(server, None))

    def _runs(self, info: StackInfo, server: str) -> bool:
        recorded = info.processes.get(server)
        return recorded is not None and recorded.find() is not None


def sweep() -> list[str]:
    """Stop and remove ephemeral stacks whose owner died; return their names."""
    swept = []
    for path in sorted(stacks_folder().glob("*/state.json")):
        info = load(path.parent)
        if info is not None and info.owner is not None and info.owner.find() is None:
            # Held by another process: it is being swept already.
            with suppress(StackBusy):
                LocalStack(info.name).abandon()
                swept.append(info.name)
    return swept


def known_server(server: str) -> str:
    """Return the name of a server of the stack as it is; raises StackError for any other."""
    if server not in _EVERY:
        raise StackError(f"{server!r} is no server of the stack", remedy=f"name one of {', '.join(_EVERY)}")
    return server
