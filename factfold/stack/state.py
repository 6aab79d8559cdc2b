"""What is known about a stack, and its state file.

Where the stack stores downloads and servers' data: the user's own folders, never the current one; their locks.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from eventstore.file_locks import locked
from factfold.stack.errors import StackBusy, StackError, StackNotUp
from factfold.stack.ports import LOOPBACK
from factfold.stack.processes import RecordedProcess


def cache_folder() -> Path:
    """Jars, plugins and the PostgreSQL tree; may be deleted at any time while no stack is up."""
    return _folder("cache", variable="XDG_CACHE_HOME", home=".cache", system="/var/cache")


def state_folder() -> Path:
    """One folder a stack: data, logs, secrets and the state file."""
    return _folder("state", variable="XDG_STATE_HOME", home=".local/state", system="/var/lib")


def stacks_folder() -> Path:
    """Parent of every stack's folder."""
    return state_folder() / "stacks"


def _folder(kind: str, *, variable: str, home: str, system: str) -> Path:
    own = os.environ.get("FACTFOLD_HOME")
    if own:
        return Path(own).expanduser().absolute() / kind
    standard = os.environ.get(variable)
    if standard:
        return Path(standard).absolute() / "factfold"
    # root's home is closed to the account PostgreSQL runs under, since it refuses to run as root.
    return (Path(system) if os.geteuid() == 0 else Path.home() / home) / "factfold"


def exclusive(path: Path, *, within: float = 600) -> AbstractContextManager[None]:
    """Hold a lock file; raises StackBusy when another process still has it after `within` seconds."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as refused:
        raise StackError(
            f"the folder {path.parent} cannot be written: {refused.strerror}",
            remedy="make it writable for you, or set FACTFOLD_HOME to a folder that is",
            place=str(path),
        ) from refused
    return locked(path, within=within, held=partial(_busy, path))


def _busy(path: Path) -> StackBusy:
    return StackBusy(
        "another process is starting, stopping or fetching the same thing",
        remedy="wait for it to end, or end it, and run again",
        place=str(path),
    )


@contextmanager
def workshop() -> Iterator[Path]:
    """Give a folder on the cache's own file system, removed afterwards whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


SERVERS = ("postgres", "kafka", "connect")  # in the order of starting
OPTIONAL_SERVERS = ("registry",)  # started where they are asked for
_STATE_FILE = "state.json"


@dataclass(frozen=True)
class PostgresInfo:
    """How to reach the stack's PostgreSQL as its superuser.

    Examples:
        >>> LocalStack().info.postgres.url("shop")
        'postgresql+psycopg://postgres:secret@127.0.0.1:5432/shop'
    """

    host: str
    port: int
    superuser: str
    password: str = field(repr=False)

    def url(self, database: str = "postgres", driver: str = "postgresql+psycopg") -> str:
        """Return an SQLAlchemy URL, password included. `driver="postgresql"` gives a libpq URL."""
        password = quote(self.password, safe="")
        return f"{driver}://{self.superuser}:{password}@{self.host}:{self.port}/{quote(database, safe='')}"


@dataclass(frozen=True)
class StackInfo:
    """Addresses, folders and processes of one stack. `owner` is set if the stack ends with a process.

    Examples:
        >>> LocalStack().info.bootstrap_servers
        '127.0.0.1:9092'
    """

    name: str
    folder: Path
    ports: dict[str, int]
    password: str = field(repr=False)
    processes: Mapping[str, RecordedProcess]
    owner: RecordedProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Kafka's address, `host:port`."""
        return f"{LOOPBACK}:{self.ports['kafka']}"

    @property
    def connect_url(self) -> str:
        """The REST address of Kafka Connect, without a slash at its end."""
        return f"http://{LOOPBACK}:{self.ports['connect']}"

    @property
    def registry_url(self) -> str:
        """The address of the schema registry's Confluent-compatible interface. Raises StackNotUp without one."""
        if "registry" not in self.ports:
            raise StackNotUp(
                f"stack {self.folder.name!r} has no schema registry", remedy="start one: factfold stack up --registry"
            )
        return f"http://{LOOPBACK}:{self.ports['registry']}/apis/ccompat/v7"

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers of this stack: the standard three, and optional ones that were started and not stopped."""
        return (*SERVERS, *(server for server in OPTIONAL_SERVERS if server in self.processes))

    @property
    def postgres(self) -> PostgresInfo:
        """PostgreSQL's address and superuser."""
        return PostgresInfo(LOOPBACK, self.ports["postgres"], "postgres", self.password)

    @property
    def secrets_dir(self) -> Path:
        """The only folder from which Connect resolves `${file:path:key}`."""
        return self.folder / "secrets"

    def data(self, server: str) -> Path:
        """Return the folder of a server's data."""
        return self.folder / "data" / server

    def log(self, server: str) -> Path:
        """Return the log file of a server: everything it prints."""
        return self.folder / "logs" / f"{server}.log"

    def with_process(self, server: str, process: RecordedProcess | None) -> StackInfo:
        """Return this information with a server's process added or removed."""
        others = {name: recorded for name, recorded in self.processes.items() if name != server}
        return replace(self, processes=others if process is None else {**others, server: process})

    def public(self) -> dict[str, Any]:
        """Return what may be shown on a shared screen: everything but the password."""
        return {
            "name": self.name,
            "folder": str(self.folder),
            "bootstrap_servers": self.bootstrap_servers,
            "connect_url": self.connect_url,
            **({"registry_url": self.registry_url} if "registry" in self.servers else {}),
            "postgres": {
                "host": LOOPBACK,
                "port": self.ports["postgres"],
                "superuser": self.postgres.superuser,
            },
            "state_file": str(state_file(self.folder)),
        }


def state_file(folder: Path) -> Path:
    """Say where a stack's state file stands."""
    return folder / _STATE_FILE


def save(info: StackInfo) -> None:
    """Write the state file in one step, readable by its owner alone: it holds the password."""
    temporary = state_file(info.folder).with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        written = {**asdict(info), "folder": str(info.folder), "dsn": info.postgres.url(driver="postgresql")}
        json.dump(written, file, indent=2)
        file.write("\n")
    os.replace(temporary, state_file(info.folder))


def load(folder: Path) -> StackInfo | None:
    """Read a stack's state file; None when there is none; raises StackError when it cannot be understood."""
    path = state_file(folder)
    try:
        info = TypeAdapter(StackInfo).validate_python({**json.loads(path.read_text("utf-8")), "folder": folder})
        return replace(info, ports={name: info.ports[name] for name in (*SERVERS, "controller")} | {**info.ports})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as damaged:
        raise StackError(
            f"the state file is damaged: {damaged!r}",
            remedy="end the stack's processes if any run, then remove its folder",
            place=str(path),
        ) from damaged
