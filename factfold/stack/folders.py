"""Where the stack stores downloads and servers' data: the user's own folders, never the current one; their locks."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from eventstore.locks import locked
from factfold.stack.errors import StackBusy, StackError


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
